"""Tells griffe about holdfast's classes, so that it shows them as Python does."""

from __future__ import annotations

from typing import Any

import griffe

_OURS, _STANDARD = "holdfast.dataclass.dataclass", "dataclasses.dataclass"


class Classes(griffe.Extension):  # type: ignore[misc]
    """Adds constructors and inherited docstrings.

    A class made with holdfast's `dataclass` has a standard dataclass's constructor. A class
    without a docstring gets the one of its first base that has one, as in `help()`.
    """

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        for decorator in cls.decorators:
            if decorator.callable_path == _OURS:
                standard = griffe.ExprName(_STANDARD)
                if isinstance(decorator.value, griffe.ExprCall):
                    decorator.value.function = standard
                else:
                    decorator.value = standard

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring is None:
            cls.docstring = next((one.docstring for one in bases(cls) if one.docstring), None)


def bases(cls: griffe.Class) -> list[griffe.Class]:
    """The classes of holdfast that it inherits from, nearest first."""
    try:
        return list[griffe.Class](cls.mro())
    except ValueError:  # unknown bases, in an order that griffe cannot resolve
        return []
