"""Configs as points of the unit cube, where equal volumes are equally likely."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.scheduler.searchers import axes
from holdfast.trial.domains import Float, Normal, Random
from holdfast.trial.search_space.parameters import Assignment, Parameter

Vector = tuple[float, ...]
"""A number in [0, 1) for each parameter of a space, even if a config does not have it."""

# The resolution of an axis.
_PLACES: Final = range(2**40)
_LAST: Final = 1 - 2**-53


def value_at(parameter: Parameter, place: float) -> Any:
    """The value of the parameter at `place`; it increases with `place`."""
    if isinstance(parameter.domain, Normal):
        return axes.value_at(parameter, place)
    return parameter.draw(_Fixed(place))


def place_of(parameter: Parameter, value: Any, rng: Random) -> float:
    """The place of `value`; if several places have that value, a random one."""
    match parameter.domain:
        case Float(q=None) | Normal(q=None):
            return min(axes.place(parameter, value), _LAST)
        case _:
            return _step_of(parameter, value, rng)


def _step_of(parameter: Parameter, value: Any, rng: Random) -> float:
    def drawn(number: int) -> Any:
        return value_at(parameter, number / len(_PLACES))

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
            found[parameter.name] = value_at(parameter, place)
    return found


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A generator that always returns the same number."""

    number: float

    def random(self) -> float:
        return self.number
