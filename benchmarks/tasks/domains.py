"""A space as domains of a `tune` module, holdfast's or Ray's, which have the same names."""

from __future__ import annotations

from typing import Any

from benchmarks.tasks.space import Axis, Space


def domains(space: Space, tune: Any) -> dict[str, Any]:
    """The flat space: a parameter that does not exist is drawn, and `Task.given` leaves it out."""
    return {axis.name: _domain(axis, tune) for axis in space}


def conditional(space: Space, tune: Any) -> dict[str, Any]:
    """The space with conditions: a parameter that exists with some values of another is inside
    each of those categories, which is then a dict of both."""
    return {axis.name: _with_dependents(axis, space, tune) for axis in space if axis.where is None}


def _with_dependents(axis: Axis, space: Space, tune: Any) -> Any:
    if not axis.choices:
        return _domain(axis, tune)
    categories = []
    for value in axis.choices:
        below = [
            other
            for other in space
            if other.where and other.where[0] == axis.name and value in other.where[1:]
        ]
        inside = {axis.name: value, **domains(below, tune)}
        categories.append(inside if below else value)
    return tune.choice(categories)


def _domain(axis: Axis, tune: Any) -> Any:
    if axis.choices:
        return tune.choice(list(axis.choices))
    if axis.integer:
        draws = tune.lograndint if axis.log else tune.randint
        return draws(int(axis.low), int(axis.high) + 1)
    return (tune.loguniform if axis.log else tune.uniform)(axis.low, axis.high)
