"""Whether two objects of ours, as scripts make them, were made with the same arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from holdfast.described import Described, state_of

# What is compared by itself, or may change.
_APART = frozenset({"metric", "mode", "max_concurrent"})


def otherwise(kept: object, said: object) -> list[str]:
    """The attributes in which they differ, by names as those of the arguments.

    None of objects of two classes, and of what is not ours, which may hold anything.
    """
    if type(kept) is not type(said) or not _is_ours(kept):
        return []
    before, after = _parts(kept), _parts(said)
    shared = [name for name in before if name in after and name not in _APART]
    return [name.lstrip("_") for name in shared if not _alike(before[name], after[name])]


def _alike(one: Any, other: Any) -> bool:
    """Where nobody can tell, they are."""
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
