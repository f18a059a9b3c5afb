"""The standard library's `dataclass`, but it creates frozen classes with slots much faster.

A script that calls `fit()` defines some 190 of them, and Python 3.11 compiles six methods for
each, which took more than half of the time to import holdfast. This version compiles only
`__init__`, at its first use, and all classes share the other methods. The classes behave like the
standard library's: fields, defaults, `replace()`, equality, hashes, repr, pickles and errors.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_KNOWN = frozenset({"frozen", "slots", "kw_only", "eq", "repr"})


def _dataclass(given: type[Any] | None = None, /, **options: bool) -> Any:
    if given is None:
        return partial(_dataclass, **options)
    if not (options.get("frozen") and options.get("slots") and options.keys() <= _KNOWN):
        return dataclasses.dataclass(given, **options)
    own = {name for name, value in vars(given).items() if value is not None}
    # Without a docstring, the standard library would compute a signature for one.
    given.__doc__ = given.__doc__ or given.__name__
    kw_only = options.get("kw_only", False)
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(
        given
    )
    methods = {"__init__": _FirstInit(made), **_OF_ALL}
    if options.get("repr", True):
        methods["__repr__"] = _repr
    if options.get("eq", True):
        methods |= _comparing(made)
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


class _FirstInit:
    """Compiles `__init__` at its first use: a run uses only 60 of the 190 classes."""

    def __init__(self, made: type[Any]) -> None:
        self._made = made

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        made = self._made
        if vars(made)["__init__"] is self:
            made.__init__ = _init(made)
        return vars(made)["__init__"].__get__(instance, owner)


def _init(made: type[Any]) -> Any:
    """Compile `__init__`. It sets slots through their descriptors, because attributes of a frozen
    class cannot be assigned."""
    names: dict[str, Any] = {"MISSING": MISSING}
    positional: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for field in fields(made):
        names[f"set_{field.name}"] = getattr(made, field.name).__set__
        parameter, value = _given(field, names)
        if field.init:
            (by_name if field.kw_only else positional).append(parameter)
        body.append(f"set_{field.name}(self, {value})")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    lines = [
        f"def make({', '.join(names)}):",
        f" def __init__({parameters}):",
        *(f"  {line}" for line in body or ["pass"]),
        " return __init__",
    ]
    found: dict[str, Any] = {}
    exec("\n".join(lines), vars(sys.modules[made.__module__]), found)
    init = found["make"](**names)
    init.__qualname__ = f"{made.__qualname__}.__init__"
    types = {field.name: field.type for field in fields(made) if field.init}
    init.__annotations__ = {**types, "return": None}
    return init


def _given(field: Field[Any], names: dict[str, Any]) -> tuple[str, str]:
    """The parameter for a field, and the expression for its value; adds the default to `names`."""
    name, default = field.name, f"default_{field.name}"
    if field.default_factory is not MISSING:
        names[default] = field.default_factory
        made = f"{default}() if {name} is MISSING else {name}"
        return f"{name}=MISSING", made if field.init else f"{default}()"
    if field.default is not MISSING:
        names[default] = field.default
        return f"{name}={default}", name if field.init else default
    return name, name


def _comparing(made: type[Any]) -> dict[str, Any]:
    key = _values(field.name for field in fields(made) if field.compare)
    digested = _values(
        field.name
        for field in fields(made)
        if (field.compare if field.hash is None else field.hash)
    )

    def __eq__(self: Any, other: object) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(digested(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values(found: Iterable[str]) -> Callable[[Any], Any]:
    names = list(found)
    return attrgetter(*names) if len(names) > 1 else partial(_few, names)


def _few(names: list[str], one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> dict[str, Any]:
    """The fields by name, because another version may have other fields, in another order."""
    return {field.name: getattr(self, field.name) for field in fields(self)}


def _setstate(self: Any, state: dict[str, Any]) -> None:
    for field in fields(self):
        if field.name in state:
            value = state[field.name]
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        elif field.default is not MISSING:
            value = field.default
        else:
            raise TypeError(f"a stored {type(self).__name__} has no {field.name}")
        object.__setattr__(self, field.name, value)


_OF_ALL = {
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
