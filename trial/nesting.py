"""Checks for values that contain themselves or are nested too deep to be written and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.schema import DEEPEST
from holdfast.trial.domains import Categorical
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.space import grid_values
from holdfast.trial.values import Path, key_name

_CONTAINERS = (Mapping, list, tuple, set, frozenset)


def check_nesting(value: Any, what: str) -> None:
    """Raise InvalidSearchSpace if a config or a search space cannot be serialized."""
    if fault := nesting_fault(value):
        raise InvalidSearchSpace(f"{what}: {fault}")


def nesting_fault(value: Any) -> str:
    """What is wrong with the nesting of `value`, with the key; "" if nothing is.

    Looks into dicts, lists, tuples, sets and the values of domains and grids.
    """
    return _fault(value, (None,), ())


def _fault(value: Any, path: tuple[Any, ...], above: tuple[int, ...]) -> str:
    parts = _parts(value)
    if parts is None:
        return ""
    if id(value) in above:
        return f"{_named(path)}: this {type(value).__name__} contains itself"
    if len(above) == DEEPEST:
        return f"{_named(path[:4])}: nested more than {DEEPEST} levels deep"
    above = (*above, id(value))
    faults = (_fault(inner, (*path, key), above) for key, inner in parts)
    return next(filter(None, faults), "")


def _named(path: Iterable[Any]) -> str:
    keys: Path = tuple(key for key in path if key is not None)
    return key_name(keys) or "it"


def _parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The contents of a container as (key, value) pairs; None for other values."""
    choices: Sequence[Any] | None = value.categories if isinstance(value, Categorical) else None
    if choices is None and isinstance(value, Mapping):
        choices = grid_values(value)
        if choices is None:
            return value.items()
    if choices is not None:
        return ((None, choice) for choice in choices)
    return enumerate(value) if isinstance(value, _CONTAINERS) else None
