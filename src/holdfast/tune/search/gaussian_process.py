"""A small Gaussian process in NumPy, and the expected improvement of points under it.

Imported in the search's thread only: NumPy takes longer to import than the rest of a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.dataclass import dataclass

Array = NDArray[np.float64]

_ROOT5: Final = math.sqrt(5.0)
_JITTER: Final = 1e-6
# Bounds and priors (median and standard deviation) of the logarithms of length scales, in edges of
# the unit cube, and of the noise, in variances of the signal.
_SCALE, _SCALE_SD = math.log(3.0), 1.0
_NOISE, _NOISE_SD = math.log(1e-3), 2.0
_SCALE_BOUNDS, _NOISE_BOUNDS = (math.log(0.03), math.log(50.0)), (math.log(1e-6), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A Matern 5/2 kernel with a length scale for each axis.

    An axis is one column of a point, or the several columns of a choice. `scales` and `noise` are
    logarithms.
    """

    axes: tuple[tuple[int, ...], ...]
    scales: tuple[float, ...]
    noise: float = _NOISE

    @classmethod
    def prior(cls, axes: Sequence[Sequence[int]]) -> Kernel:
        """The kernel that is likeliest without any values."""
        return cls(axes=tuple(map(tuple, axes)), scales=(_SCALE,) * len(axes))

    def fit(self, points: Array, values: Array, *, steps: int) -> Kernel:
        """The kernel with the highest posterior density after at most so many steps of BFGS from
        here.

        `points` has a row for each of the standardized `values`. The variance of the signal is the
        likeliest one.
        """
        apart = np.stack([_squared(points[:, axis], points[:, axis]) for axis in self.axes])
        bounds = np.array([_SCALE_BOUNDS] * len(self.axes) + [_NOISE_BOUNDS])
        found = _minimize(
            lambda terms: _loss(terms, apart, values),
            np.array([*self.scales, self.noise]),
            bounds,
            steps,
        )
        return Kernel(axes=self.axes, scales=tuple(map(float, found[:-1])), noise=float(found[-1]))


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
        shared, _, _ = _matern(_squared(self._scaled(points), self._points))
        known = ((shared @ self._inverse) * shared).sum(axis=1)
        return shared @ self._weights, np.sqrt(self.variance * np.maximum(1.0 - known, 1e-10))

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
    return (1.0 + distance + (5.0 / 3.0) * squared) * falling, distance, falling


def _loss(terms: Array, apart: Array, values: Array) -> tuple[float, Array]:
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
    slope = np.outer(weights, weights) / variance - inverse
    within = slope * ((5.0 / 3.0) * (1.0 + distance) * falling)
    gradient = np.empty_like(terms)
    gradient[:-1] = -0.5 * np.tensordot(apart, within, 2) * shrink
    gradient[-1] = -0.5 * float(np.trace(slope)) * noise
    likeliest = np.array([_SCALE] * (len(terms) - 1) + [_NOISE])
    widths = np.array([_SCALE_SD] * (len(terms) - 1) + [_NOISE_SD])
    prior = (terms - likeliest) / widths
    return loss + 0.5 * float(prior @ prior), gradient + prior / widths


def _minimize(
    loss: Callable[[Array], tuple[float, Array]], start: Array, bounds: Array, steps: int
) -> Array:
    """The best place that BFGS finds within `bounds`, with a line search that halves."""
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
    return place
