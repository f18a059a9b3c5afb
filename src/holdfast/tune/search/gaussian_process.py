"""A small Gaussian process in NumPy, and the expected improvement of points under it.

Imported in the search's thread only: NumPy takes longer to import than the rest of a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.dataclass import dataclass

Array = NDArray[np.float64]

_ROOT5: Final = math.sqrt(5.0)
_JITTER: Final = 1e-6
# Bounds of the logarithms of length scales, in edges of the unit cube, and of the noise, in
# variances of the signal.
_SCALE_BOUNDS, _NOISE_BOUNDS = (math.log(0.03), math.log(50.0)), (math.log(1e-6), math.log(100.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The kernels that are likely before there are values, by the mean and the standard deviation
    of the logarithms of a length scale and of the noise. `rarity` is the negative logarithm of how
    likely the prior itself is, compared with another one."""

    scale: float
    scale_sd: float
    noise: float
    noise_sd: float
    rarity: float = 0.0

    def kernel(self, axes: Sequence[Sequence[int]]) -> Kernel:
        """The likeliest kernel."""
        return Kernel(
            axes=tuple(map(tuple, axes)),
            scales=(self.scale,) * len(axes),
            noise=self.noise,
            prior=self,
        )

    def loss(self, terms: Array) -> tuple[float, Array]:
        """The negative logarithm of the density of scales and noise, and its gradient."""
        axes = len(terms) - 1
        widths = np.array([self.scale_sd] * axes + [self.noise_sd])
        away = (terms - np.array([self.scale] * axes + [self.noise])) / widths
        loss = self.rarity + 0.5 * float(away @ away) + float(np.log(widths).sum())
        return loss, away / widths


# With the smooth prior alone, noise looks like slopes that lead to the corners of the space; with
# the noisy one alone, the search is slow on smooth functions. The values tell which one holds, and
# the rarity keeps a few values of a smooth function from telling the wrong one.
SMOOTH: Final = Prior(scale=math.log(3.0), scale_sd=1.0, noise=math.log(1e-3), noise_sd=2.0)
NOISY: Final = Prior(scale=math.log(0.5), scale_sd=1.0, noise=0.0, noise_sd=0.5, rarity=4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A Matern 5/2 kernel with a length scale for each axis.

    An axis is one column of a point, or the several columns of a choice. `scales` and `noise` are
    logarithms. `loss` is the negative logarithm of the density of the values that it was fitted
    to, of its scales and of its noise.
    """

    axes: tuple[tuple[int, ...], ...]
    scales: tuple[float, ...]
    noise: float
    prior: Prior
    loss: float = math.inf

    def fit(self, points: Array, values: Array, *, steps: int) -> Kernel:
        """The kernel with the highest posterior density after at most so many steps of BFGS from
        here.

        `points` has a row for each of the standardized `values`. The variance of the signal is the
        likeliest one.
        """
        apart = np.stack([_squared(points[:, axis], points[:, axis]) for axis in self.axes])
        bounds = np.array([_SCALE_BOUNDS] * len(self.axes) + [_NOISE_BOUNDS])
        found, loss = _minimize(
            lambda terms: _loss(terms, apart, values, self.prior),
            np.array([*self.scales, self.noise]),
            bounds,
            steps,
        )
        return replace(
            self, scales=tuple(map(float, found[:-1])), noise=float(found[-1]), loss=loss
        )


class GaussianProcess:
    """The distribution of values given `values` at `points`, with a mean of 0."""

    def __init__(
        self, kernel: Kernel, points: Array, values: Array, *, variance: float | None = None
    ) -> None:
        self._columns = [column for axis in kernel.axes for column in axis]
        self._shrink = np.array(
            [
                math.exp(-scale)
                for axis, scale in zip(kernel.axes, kernel.scales, strict=True)
                for _ in axis
            ]
        )
        self._points = self._scaled(points)
        covariance, _, _ = _matern(_squared(self._points, self._points))
        covariance[np.diag_indices_from(covariance)] += math.exp(kernel.noise) + _JITTER
        self._inverse = np.linalg.inv(covariance)
        self._weights = self._inverse @ values
        likeliest = max(float(values @ self._weights) / len(values), 1e-6)
        self.variance = likeliest if variance is None else variance

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at each of the points."""
        shared = self._shared(points)
        known = ((shared @ self._inverse) * shared).sum(axis=1)
        return shared @ self._weights, np.sqrt(self.variance * np.maximum(1.0 - known, 1e-10))

    def means(self, points: Array) -> Array:
        """The mean alone, which costs less."""
        found: Array = self._shared(points) @ self._weights
        return found

    def _shared(self, points: Array) -> Array:
        """The covariances of the points with those that have values."""
        return _matern(_squared(self._scaled(points), self._points))[0]

    def _scaled(self, points: Array) -> Array:
        scaled: Array = points[:, self._columns] * self._shrink
        return scaled


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """The logarithm of how far below `best` a value is expected to be.

    S. Ament et al., "Unexpected Improvements to Expected Improvement for Bayesian Optimization"
    (2023): far away, the expected improvement itself is 0 in floating point.
    """
    z = (best - mean) / deviation
    near = np.maximum(z, -5.0)
    density = np.exp(-0.5 * near * near) / math.sqrt(math.tau)
    with np.errstate(divide="ignore"):
        exact = np.log(density + near * _normal_cdf(near))
    far = -0.5 * z * z - 2.0 * np.log(np.maximum(-z, 1.0)) - 0.5 * math.log(math.tau)
    found: Array = np.where(z > -5.0, exact, far) + np.log(deviation)
    return found


_erf: Final = np.vectorize(math.erf, otypes=[float])


def _normal_cdf(z: Array) -> Array:
    found: Array = 0.5 * (1.0 + _erf(z / math.sqrt(2.0)))
    return found


def _squared(left: Array, right: Array) -> Array:
    """The squared distance of each pair of rows."""
    found: Array = (
        (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1) - 2.0 * left @ right.T
    )
    return np.maximum(found, 0.0, out=found)


def _matern(squared: Array) -> tuple[Array, Array, Array]:
    """The covariances for squared distances, with the distances times the root of 5, and their
    negative exponentials."""
    distance = _ROOT5 * np.sqrt(squared)
    falling = np.exp(-distance)
    covariance = 1.0 + distance
    covariance += (5.0 / 3.0) * squared
    covariance *= falling
    return covariance, distance, falling


def _loss(terms: Array, apart: Array, values: Array, prior: Prior) -> tuple[float, Array]:
    """The negative logarithm of the posterior density of a kernel, and its gradient."""
    count, shrink, noise = len(values), np.exp(-2.0 * terms[:-1]), math.exp(terms[-1])
    covariance, distance, falling = _matern(np.tensordot(shrink, apart, 1))
    covariance[np.diag_indices(count)] += noise + _JITTER
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros_like(terms)
    inverse = np.linalg.inv(covariance)
    weights = inverse @ values
    variance = max(float(values @ weights) / count, 1e-12)
    loss = 0.5 * count * math.log(variance) + float(np.log(np.diagonal(root)).sum())
    steeper = np.outer(weights, weights) / variance - inverse
    within = steeper * ((5.0 / 3.0) * (1.0 + distance) * falling)
    gradient = np.empty_like(terms)
    gradient[:-1] = -0.5 * np.tensordot(apart, within, 2) * shrink
    gradient[-1] = -0.5 * float(np.trace(steeper)) * noise
    expected, slope = prior.loss(terms)
    return loss + expected, gradient + slope


def _minimize(
    loss: Callable[[Array], tuple[float, Array]], start: Array, bounds: Array, steps: int
) -> tuple[Array, float]:
    """The best place that BFGS finds within `bounds`, with a line search that halves, and its
    loss."""
    place, (least, slope) = start, loss(start)
    curvature = np.eye(len(start)) * 0.1  # of the inverse: the first step is short
    for _ in range(steps):
        downhill = -curvature @ slope
        reach = float(np.abs(downhill).max())
        if reach < 1e-3:
            break
        share = min(1.0, 2.0 / reach)
        for _ in range(6):
            there = np.clip(place + share * downhill, bounds[:, 0], bounds[:, 1])
            lower, steeper = loss(there)
            if lower < least:
                break
            share *= 0.3
        else:
            break
        moved, turned = there - place, steeper - slope
        along = float(moved @ turned)
        if along > 1e-10:
            mix = np.eye(len(start)) - np.outer(moved, turned) / along
            curvature = mix @ curvature @ mix.T + np.outer(moved, moved) / along
        improved = least - lower
        place, least, slope = there, lower, steeper
        if improved < 1e-3:
            break
    return place, least
