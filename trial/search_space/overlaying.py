"""Combines the fixed part of a space with the values that a search chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.trial.domains import Domain
from holdfast.trial.space import is_grid, is_searched
from holdfast.trial.values import key_name


def searched_in(space: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The keys of `space` with a domain or a grid."""
    if isinstance(space, Domain) or is_grid(space) or _is_searched_list(space):
        yield key_name(path)
    elif isinstance(space, Mapping):
        for key, value in space.items():
            yield from searched_in(value, (*path, str(key)))


def without_searched(space: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed part of `space`."""
    return {
        key: without_searched(value) if type(value) is dict else value
        for key, value in space.items()
        if not (isinstance(value, Domain) or is_grid(value) or _is_searched_list(value))
    }


def _is_searched_list(value: Any) -> bool:
    """Whether a search returns the whole list, including its fixed items."""
    return isinstance(value, (list, tuple)) and is_searched(value)


def overlaid(fixed: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`chosen` merged over `fixed`, also in nested dicts."""
    merged = dict(fixed)
    for key, value in chosen.items():
        below = merged.get(key)
        nested = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = overlaid(below, value) if nested else value  # type: ignore[arg-type]
    return merged
