"""Configs whose fields a script may assign after it has made them, as in Ray.

What is assigned is checked where the config is used: there holdfast takes a copy of its own.
"""

from __future__ import annotations

from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, TypeVar

C = TypeVar("C", bound=type)
T = TypeVar("T")


def assignable(kind: C) -> C:
    """Decorate a dataclass: only its fields can be assigned, so that a misspelt one is an
    error."""
    names = [field.name for field in fields(kind)]

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if name not in names:
            meant = get_close_matches(name, names, 1)
            hint = f": did you mean {meant[0]}?" if meant else f". It has {', '.join(names)}"
            raise AttributeError(f"{type(self).__name__} has no field {name!r}{hint}")
        object.__setattr__(self, name, value)

    kind.__setattr__ = __setattr__  # type: ignore[assignment]
    kind.is_assignable = True  # type: ignore[attr-defined]
    return kind


def checked(config: T) -> T:
    """A copy of a config, and of the configs in it, with all values checked; anything else as it
    is.

    Raises InvalidConfig.
    """
    if getattr(type(config), "is_assignable", False) is not True:
        return config
    values = {field.name: getattr(config, field.name) for field in fields(config)}  # type: ignore[arg-type]
    copy: T = replace(config, **{name: checked(value) for name, value in values.items()})  # type: ignore[type-var]
    return copy
