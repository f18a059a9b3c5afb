"""Whether two schedulers or searches of holdfast were made with the same arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from holdfast.described import Described, state_of

# These are compared elsewhere, or may change.
_APART = frozenset({"metric", "mode", "max_concurrent"})


def differing_arguments(kept: object, script: object) -> list[str]:
    """The names of the arguments in which the two differ.

    Empty for objects of two classes, and for classes that are not holdfast's: their attributes
    may hold anything.
    """
    if type(kept) is not type(script) or not _is_ours(kept):
        return []
    before, after = _parts(kept), _parts(script)
    shared = [name for name in before if name in after and name not in _APART]
    return [name.lstrip("_") for name in shared if not _alike(before[name], after[name])]


def _alike(one: Any, other: Any) -> bool:
    """Whether they are equal, or cannot be compared."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or (math.isnan(one) and math.isnan(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, (str, bytes)):
        return bool(one == other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if _is_ours(one):
        return _alike(_parts(one), _parts(other))
    return getattr(one, "__qualname__", "") == getattr(other, "__qualname__", "")


def _is_ours(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == __name__.partition(".")[0]


def _parts(value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Described):
        return state_of(value)
    return dict(getattr(value, "__dict__", {}))
