"""Configs as points of the unit cube, for model-based searchers: axes, places and densities."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist, fmean, pstdev
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameter
from holdfast.trial.space import Categorical, Float, Integer, Normal, Random, below

_TAIL: Final = 1e-9  # cut the normal distribution off at six sigma


def place(parameter: Parameter, value: Any) -> float:
    """The position of `value` on the axis, from 0 to 1; for a choice, the index of its category.

    If the parameter is drawn at random, equal lengths of the axis are equally likely.
    """
    match parameter.domain:
        case Categorical():
            return float(value)
        case Normal(mean=mean, sd=sd):
            return NormalDist(mean, sd).cdf(value)
        case Float(log=log) | Integer(log=log) as domain:
            low, high = _ends(domain)
            if log:
                return _share(math.log(value), math.log(low), math.log(high))
            return _share(value, low, high)


def value_at(parameter: Parameter, part: float) -> Any:
    """The value at a position: the inverse of `place`, rounded to a value of the parameter."""
    match parameter.domain:
        case Categorical():
            return parameter.fit(part)
        case Normal(mean=mean, sd=sd):
            found = NormalDist(mean, sd).inv_cdf(min(max(part, _TAIL), 1.0 - _TAIL))
        case Float(log=log) | Integer(log=log) as domain:
            low, high = _ends(domain)
            if log:
                found = math.exp((1.0 - part) * math.log(low) + part * math.log(high))
            else:
                found = (1.0 - part) * low + part * high
    return parameter.fit(found)


def only_value(parameter: Parameter) -> Any:
    """The value of a parameter that has only one; None otherwise."""
    if isinstance(parameter.domain, Categorical):
        return 0 if parameter.count == 1 else None
    if isinstance(parameter.domain, Normal):
        return None
    lowest, highest = bounds(parameter.domain)
    return lowest if lowest == highest else None


def varied(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """The parameters with several values, without conditions on parameters that have only one.

    Raises InvalidSearchSpace if no parameter has several values.
    """
    fixed = {one.name for one in parameters if only_value(one) is not None}
    free = [one for one in parameters if one.name not in fixed]
    if not free:
        names = ", ".join(sorted(fixed))
        raise InvalidSearchSpace(f"{names}: nothing to search: each parameter has only one value")
    return tuple(
        replace(one, conditions=tuple(c for c in one.conditions if c[0] not in fixed))
        for one in free
    )


def bounds(domain: Float | Integer) -> tuple[Any, Any]:
    """The smallest and the largest possible value."""
    return domain.nearest(domain.lower), domain.nearest(domain.upper)


def _ends(domain: Float | Integer) -> tuple[float, float]:
    """The ends of the axis, half a step outside the bounds: each value has an equal length."""
    lowest, highest = bounds(domain)
    half = 0.5 * (domain.q or (1 if isinstance(domain, Integer) else 0))
    return lowest - half, highest + half


def _share(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


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


"""A number in [0, 1) for each parameter of a space, even if a config does not have it."""

# The resolution of an axis.
_PLACES: Final = range(2**40)
_LAST: Final = 1 - 2**-53


def drawn_at(parameter: Parameter, place: float) -> Any:
    """The value of the parameter at `place`; it increases with `place`."""
    if isinstance(parameter.domain, Normal):
        return value_at(parameter, place)
    return parameter.draw(_Fixed(place))


def place_of(parameter: Parameter, value: Any, rng: Random) -> float:
    """The place of `value`; if several places have that value, a random one."""
    match parameter.domain:
        case Float(q=None) | Normal(q=None):
            return min(place(parameter, value), _LAST)
        case _:
            return _step_of(parameter, value, rng)


def _step_of(parameter: Parameter, value: Any, rng: Random) -> float:
    def drawn(number: int) -> Any:
        return drawn_at(parameter, number / len(_PLACES))

    first = bisect_left(_PLACES, value, key=drawn)
    end = bisect_right(_PLACES, value, lo=first, key=drawn)
    return (first + (end - first) * rng.random()) / len(_PLACES)


def vector_of(parameters: Sequence[Parameter], assignment: Assignment, rng: Random) -> Vector:
    """The point of a config; parameters that do not exist in it get random places."""
    return tuple(
        place_of(one, assignment[one.name], rng) if one.name in assignment else rng.random()
        for one in parameters
    )


def assignment_at(parameters: Sequence[Parameter], vector: Vector) -> Assignment:
    """The config at a point: the inverse of `vector_of`, up to rounding."""
    found: dict[str, Any] = {}
    for parameter, place in zip(parameters, vector, strict=True):
        if parameter.exists_in(found):
            found[parameter.name] = drawn_at(parameter, place)
    return found


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A generator that always returns the same number."""

    number: float

    def random(self) -> float:
        return self.number
