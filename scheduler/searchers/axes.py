"""Maps each parameter of a search space to one axis of a unit cube, for model-based searchers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final

from holdfast.trial.domains import Categorical, Float, Integer, Normal
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Parameter

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
