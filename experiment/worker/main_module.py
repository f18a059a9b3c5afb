"""Makes the parts of the user's script available in workers, under the names that pickles use."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from types import CellType, FunctionType
from typing import Any

_MAIN = "__main__"


def adopt(*values: Any) -> None:
    """Copy the script's functions and classes that `values` use into `__main__` of this process.

    cloudpickle sends them by value. Code that pickles by name inside a trial (a checkpoint with an
    object of the script's class, a multiprocessing pool) looks for them in `__main__`.
    """
    main, seen, waiting = sys.modules[_MAIN], set[int](), list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        waiting += _parts(value)
        if _is_of_script(value) and "." not in value.__qualname__:
            setattr(main, value.__name__, value)


def _is_of_script(value: Any) -> bool:
    return isinstance(value, (FunctionType, type)) and value.__module__ == _MAIN


def _parts(value: Any) -> Iterator[Any]:
    """The parts of a value that may refer to more of the script. Lists are skipped if they may be
    data."""
    if isinstance(value, FunctionType):
        if value.__module__ == _MAIN:
            yield from filter(_leads_on, value.__globals__.values())
        yield from (_content(cell) for cell in value.__closure__ or ())
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, type):
        yield from value.__bases__
        if value.__module__ == _MAIN:
            yield from (getattr(part, "__func__", part) for part in vars(value).values())
    elif isinstance(value, Mapping):
        yield from value.values()
    elif _leads_on(value):
        yield type(value)
        yield from getattr(value, "__dict__", {}).values()


def _leads_on(value: Any) -> bool:
    return _is_of_script(value) or type(value).__module__ == _MAIN


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
