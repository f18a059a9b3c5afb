"""What griffe must know of holdfast's classes to show them as Python sees them."""

from __future__ import annotations

from typing import Any

import griffe

_OURS, _STANDARD = "holdfast.dataclass.dataclass", "dataclasses.dataclass"


class Classes(griffe.Extension):  # type: ignore[misc]
    """A class made with holdfast's `dataclass` has the constructor that a standard one has, and
    a class without a docstring has that of its first base with one, as in `help()`."""

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
    except ValueError:  # bases that are not known here, in an order that griffe cannot settle
        return []
