"""The standard library's `dataclass`, but it creates classes much faster.

A script that calls `fit()` defines some 340 of them. Python 3.11 takes 720 µs for one with six
fields, because it compiles six methods; this version takes 28 µs. All classes share the methods.
Only `__init__` is made for each class, at its first use, from code that classes with as many
fields share. The classes behave like the standard library's: fields, defaults, `replace()`,
equality, hashes, repr, pickles and errors. Their modules must import annotations from
`__future__`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import cache, partial
from operator import attrgetter, eq, ge, gt, le, lt
from reprlib import recursive_repr
from types import CellType, CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any


@dataclasses.dataclass
class _Example:
    """A class of the standard library, which shows what it stores about classes and fields."""

    field: int


_PARAMS = vars(_Example)["__dataclass_params__"]
_IS_FIELD = fields(_Example)[0]._field_type  # type: ignore[attr-defined]


def _dataclass(given: type[Any] | None = None, /, **options: bool) -> Any:
    if given is None:
        return partial(_dataclass, **options)
    inherited: dict[str, Field[Any]] = {}
    for base in reversed(given.__mro__[1:]):
        inherited |= getattr(base, "__dataclass_fields__", {})
    own = _own_fields(given, kw_only=options.get("kw_only", False))
    found = inherited | own
    written = {name for name, value in vars(given).items() if value is not None}
    added = {name: method for name, method in _methods(options).items() if name not in written}
    added |= {
        "__doc__": given.__doc__ or given.__name__,
        "__dataclass_fields__": found,
        "__dataclass_params__": _PARAMS,
        "__match_args__": tuple(f.name for f in found.values() if f.init and not f.kw_only),
    }
    if options.get("slots"):
        added["__slots__"] = tuple(name for name in own if name not in inherited)
        made = _with_slots(given, own.keys(), added)
    else:
        made = given
        for name in [name for name in own if isinstance(vars(given).get(name), Field)]:
            delattr(made, name)
        added |= {f.name: f.default for f in own.values() if f.default is not MISSING}
        for name, value in added.items():
            setattr(made, name, value)
    if "__init__" not in written:
        made.__init__ = _FirstInit(made, frozen=options.get("frozen", False))
    return made


def _own_fields(given: type[Any], *, kw_only: bool) -> dict[str, Field[Any]]:
    found: dict[str, Field[Any]] = {}
    for name, annotation in given.__annotations__.items():
        if annotation.startswith("ClassVar"):
            continue
        if annotation == "KW_ONLY":
            kw_only = True
            continue
        default = vars(given).get(name, MISSING)
        one: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
        one.name, one.type, one._field_type = name, annotation, _IS_FIELD
        if one.kw_only is MISSING:
            one.kw_only = kw_only
        found[name] = one
    return found


def _methods(options: Mapping[str, bool]) -> dict[str, Any]:
    """The methods that all classes with these options share."""
    frozen = options.get("frozen", False)
    methods: dict[str, Any] = {}
    if options.get("repr", True):
        methods["__repr__"] = _repr
    if options.get("eq", True):
        methods["__eq__"] = _eq
        methods["__hash__"] = _hash if frozen or options.get("unsafe_hash") else None
    if options.get("order"):
        methods |= _ORDER
    if frozen:
        methods |= {"__setattr__": _setattr, "__delattr__": _delattr}
    if frozen and options.get("slots"):
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    return methods


def _with_slots(given: type[Any], names: Iterable[str], added: Mapping[str, Any]) -> type[Any]:
    """A second class, because slots cannot be added to one, as in the standard library."""
    space = vars(given) | added
    for name in (*names, "__dict__", "__weakref__"):
        space.pop(name, None)
    made: type[Any] = type.__call__(type(given), given.__name__, given.__bases__, space)
    made.__qualname__ = given.__qualname__
    return made


class _FirstInit:
    """Makes `__init__` at its first use: a run uses a fifth of the classes."""

    def __init__(self, made: type[Any], *, frozen: bool) -> None:
        self._made = made
        self._frozen = frozen

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        made = self._made
        if vars(made)["__init__"] is self:
            made.__init__ = _init(made, frozen=self._frozen)
        return vars(made)["__init__"].__get__(instance, owner)


def _init(made: type[Any], *, frozen: bool) -> Any:
    """Make `__init__`, from the code of all classes with as many fields."""
    given = sorted((one for one in fields(made) if one.init), key=lambda one: bool(one.kw_only))
    unset = [one for one in fields(made) if not one.init and _has_default(one)]
    by_name = sum(bool(one.kw_only) for one in given)
    code = _body(len(given), by_name, len(unset), hasattr(made, "__post_init__"))
    setters = [_setter(made, one, frozen=frozen) for one in (*given, *unset)]
    for at, one in enumerate(unset, len(given)):
        setters[at] = partial(_set_default, setters[at], one.default)
    init = FunctionType(
        code.replace(co_varnames=("self", *(one.name for one in given))),
        vars(sys.modules[made.__module__]),
        "__init__",
        tuple(one.default for one in given if not one.kw_only and _has_default(one)),
        tuple(CellType(setters[int(name[1:])]) for name in code.co_freevars),
    )
    init.__kwdefaults__ = {
        one.name: one.default for one in given if one.kw_only and _has_default(one)
    }
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = {**{one.name: one.type for one in given}, "return": None}
    return init


@cache
def _body(given: int, by_name: int, unset: int, is_checked: bool) -> CodeType:
    """The code of an `__init__` with `given` parameters, the last `by_name` of them by name alone,
    which calls a setter for each and for each of `unset` further fields, then `__post_init__`.

    Compiling it takes 100 µs, renaming its parameters two.
    """
    parameters = [f"p{at}" for at in range(given)]
    if by_name:
        parameters.insert(given - by_name, "*")
    setters = [f"s{at}" for at in range(given + unset)]
    lines = [f"  {setters[at]}(self, p{at})" for at in range(given)]
    lines += [f"  {set_default}(self)" for set_default in setters[given:]]
    lines += ["  self.__post_init__()"] if is_checked else []
    source = [
        f"def make({', '.join(setters)}):",
        f" def __init__({', '.join(['self', *parameters])}):",
        *(lines or ["  pass"]),
        " return __init__",
    ]
    found: dict[str, Any] = {}
    exec("\n".join(source), found)
    init: FunctionType = found["make"](*setters)
    return init.__code__


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


Setter = Callable[[Any, Any], None]


def _setter(made: type[Any], field: Field[Any], *, frozen: bool) -> Setter:
    """A function that sets the field, also of a frozen object; MISSING is replaced by what the
    field's factory makes."""
    name, factory = field.name, field.default_factory
    slot = getattr(made, name, None)
    if isinstance(slot, MemberDescriptorType):
        set_field: Setter = slot.__set__
    else:
        set_attribute = object.__setattr__ if frozen else setattr

        def set_field(one: Any, value: Any) -> None:
            set_attribute(one, name, value)

    if factory is MISSING:
        return set_field
    return lambda one, value: set_field(one, factory() if value is MISSING else value)


def _set_default(set_field: Setter, default: Any, one: Any) -> None:
    set_field(one, default)


def _comparison(compare: Callable[[Any, Any], bool]) -> Any:
    def method(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = _compared(self.__class__)
        return compare(values(self), values(other))

    return method


_eq = _comparison(eq)
_ORDER = {f"__{one.__name__}__": _comparison(one) for one in (lt, le, gt, ge)}


def _hash(self: Any) -> int:
    return hash(_hashed(self.__class__)(self))


@cache
def _compared(kind: type[Any]) -> Callable[[Any], Any]:
    return _values(one.name for one in fields(kind) if one.compare)


@cache
def _hashed(kind: type[Any]) -> Callable[[Any], Any]:
    return _values(
        one.name for one in fields(kind) if (one.compare if one.hash is None else one.hash)
    )


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


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
