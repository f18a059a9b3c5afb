"""Public names that are imported when they are first used, so that `import holdfast` is light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for `module`; `homes` says where each name is defined.

    A home of `package.module:other` is the object `other` there.
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        where, _, other = home.partition(":")
        found = getattr(import_module(where), other or name)
        import_module(module).__dict__[name] = found
        return found

    def names() -> list[str]:
        return sorted(homes)

    return get, names
