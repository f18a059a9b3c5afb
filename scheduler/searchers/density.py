"""Kernel densities over a unit cube with some categorical axes: the model of BOHB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, pstdev
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.trial.domains import Random, below

_STANDARD: Final = NormalDist()
_ROOT_TAU: Final = math.sqrt(math.tau)

Vector = tuple[float, ...]
"""A config: for each axis a number from 0 to 1, or the index of a category."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """A product of kernels around each of `points`, with one of `widths` per axis.

    `sizes` has the number of categories of each axis, 0 for a continuous one, whose kernel is
    Gaussian. The kernel of a categorical axis is that of Aitchison and Aitken, "Multivariate
    binary discrimination by the kernel method" (1976): 1 - width for the point's own category, and
    the width shared among the others.
    """

    points: tuple[Vector, ...]
    sizes: tuple[int, ...]
    widths: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[Vector], sizes: Sequence[int], *, least_width: float) -> Density:
        """Fit widths by the normal reference rule: 1.06 standard deviations times n^(-1/(4 + d)).

        No width is below `least_width`. The width of a categorical axis is at most (size - 1) /
        size, where all categories are equally likely.
        """
        shrink = 1.06 * len(points) ** (-1.0 / (4 + len(sizes)))
        spreads = [pstdev(axis) for axis in zip(*points, strict=True)]
        widths = [
            min(max(shrink * spread, least_width), (size - 1) / size if size else math.inf)
            for spread, size in zip(spreads, sizes, strict=True)
        ]
        return cls(points=tuple(points), sizes=tuple(sizes), widths=tuple(widths))

    def at(self, vector: Vector) -> float:
        """The density at a point."""
        return fmean(self._kernel(point, vector) for point in self.points)

    def draw(self, rng: Random, *, widen: float) -> Vector:
        """Draw near one of the points, with continuous kernels `widen` times as wide."""
        center = self.points[below(len(self.points), rng)]
        return tuple(
            _other(int(value), size, width, rng) if size else _inside(value, widen * width, rng)
            for value, size, width in zip(center, self.sizes, self.widths, strict=True)
        )

    def _kernel(self, point: Vector, vector: Vector) -> float:
        product = 1.0
        for own, value, size, width in zip(point, vector, self.sizes, self.widths, strict=True):
            if size:
                product *= 1.0 - width if own == value else width / (size - 1)
            else:
                product *= math.exp(-0.5 * ((value - own) / width) ** 2) / (width * _ROOT_TAU)
        return product


def _other(category: int, size: int, width: float, rng: Random) -> float:
    """The category itself or, with the probability `width`, any category."""
    return float(below(size, rng)) if rng.random() < width else float(category)


def _inside(mean: float, width: float, rng: Random) -> float:
    """Draw from the normal distribution truncated to 0..1."""
    low, high = _STANDARD.cdf(-mean / width), _STANDARD.cdf((1.0 - mean) / width)
    part = low + rng.random() * (high - low)
    if not 0.0 < part < 1.0:  # the inverse has no value there
        return mean
    return min(max(mean + width * _STANDARD.inv_cdf(part), 0.0), 1.0)
