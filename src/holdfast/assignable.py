"""Configs whose fields a script may assign after it has made them, as in Ray.

What is assigned is checked where the config is used: there holdfast takes a copy of its own.
"""

from __future__ import annotations

from dataclasses import Field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

T = TypeVar("T")


def _assign(config: Assignable, name: str, value: Any) -> None:
    names = [field.name for field in fields(config)]
    if name not in names:
        meant = get_close_matches(name, names, 1)
        hint = f": did you mean {meant[0]}?" if meant else f". It has {', '.join(names)}"
        raise AttributeError(f"{type(config).__name__} has no field {name!r}{hint}")
    object.__setattr__(config, name, value)


class Assignable:
    """Base class of dataclasses: only their fields can be assigned, so that a misspelt one is an
    error."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    if not TYPE_CHECKING:  # a type checker that saw it would let any name pass
        __setattr__ = _assign


def checked(config: T) -> T:
    """A copy of a config, and of the configs in it, with all values checked; anything else as it
    is.

    Raises InvalidConfig.
    """
    if not isinstance(config, Assignable):
        return config
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return replace(config, **{name: checked(value) for name, value in values.items()})
