"""Pickles holdfast's own objects as a public class name and the constructor's arguments.

This applies to schedulers, searchers, stoppers, domains, loggers, trackers and reporters. Files
do not contain their private attributes, so these can be renamed. Attributes that differ from those
of a newly constructed object, such as a metric that was set later, are stored as well. Pickles
refer to `rebuilt` and `rebuilt_part`: do not move or rename them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass, replace
from functools import wraps
from importlib import import_module
from typing import Any, ClassVar, Final, Self

from holdfast.dataclass import dataclass
from holdfast.errors import TuneError, for_the_caller
from holdfast.plain_numbers import takes_numbers

# Increase it when arguments of a class change their meaning; `rebuilt` must read all earlier ones.
VERSION: Final = 1
# The modules by their short names in files.
_PUBLIC: Final[Mapping[str, str]] = {
    "schedulers": "holdfast.tune.schedulers",
    "search": "holdfast.tune.search",
    "stopper": "holdfast.tune.stopper",
    "logger": "holdfast.tune.logger",
    "tune": "holdfast.tune",
    "mlflow": "holdfast.air.integrations.mlflow",
    "wandb": "holdfast.air.integrations.wandb",
    "comet": "holdfast.air.integrations.comet",
}
_DOMAINS_MODULE: Final = "holdfast.trial.space"
_DOMAINS: Final = ("Categorical", "Float", "Function", "Integer", "Normal")
# The methods that `Construction.calls` may contain.
_METHODS: Final = frozenset({"add_evaluated_point", "add_metric_column", "add_parameter_column"})
# The attribute of an object that has its Construction; older pickles have it, too.
_CONSTRUCTION: Final = "_made_of"

Call = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class UnknownDescription(ValueError):
    """A file names a class that this version does not have; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Construction:
    """The construction of one of holdfast's objects: the class whose constructor the user called,
    its arguments, and the public methods that were called afterwards."""

    kind: type[Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def initialize(self, empty: Any) -> Any:
        """Initialize `empty`, an object whose constructor has not run, in the same way."""
        self.kind.__init__(empty, *self.args, **self.kwargs)
        for method, args, kwargs in self.calls:
            getattr(empty, method)(*args, **kwargs)
        return empty

    def argument(self, name: str) -> Any:
        """The argument for a parameter; None if there was none."""
        return self._arguments().get(name)

    def with_arguments(self, **arguments: Any) -> Construction:
        """A copy with these arguments replaced or added."""
        return replace(self, args=(), kwargs={**self._arguments(), **arguments})

    def without(self, *names: str) -> Construction:
        """A copy without these arguments."""
        arguments = self._arguments()
        kept = {name: value for name, value in arguments.items() if name not in names}
        return replace(self, args=(), kwargs=kept)

    def _arguments(self) -> dict[str, Any]:
        """All arguments by name."""
        import inspect

        signature = inspect.signature(self.kind)
        arguments = dict(signature.bind(*self.args, **self.kwargs).arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name, {})
        return arguments

    def __deepcopy__(self, memo: Any) -> Construction:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An object in a file: the public name of its class, and its construction.

    `state` has the attributes that differ from those of an object that was constructed in the same
    way.
    """

    name: str
    construction: Construction
    state: Mapping[str, Any]


class Described:
    """Base class of holdfast's objects that users construct and files contain.

    `needs_trust`: the reason why an untrusted file must not create such an object; "" if it may.
    """

    needs_trust: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls) and is_holdfast_class(cls):
            cls.__init__ = _keeping_arguments(cls.__init__)  # type: ignore[method-assign]

    def construction(self) -> Construction:
        """The construction of an equal object. A class overrides this if an argument cannot be
        used twice, such as a generator or a file that may be gone."""
        known: Construction | None = vars(self).get(_CONSTRUCTION)
        return known or Construction(kind=type(self))

    def without_secrets(self, construction: Construction) -> Construction:
        """The part of the construction that a file may contain; a class with secrets removes them.

        Called once, at the end of the constructor of holdfast's class.
        """
        return construction

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self).__reduce__ is not object.__reduce__:
            return self.__reduce__()
        description = description_of(self)
        if description is None:
            return object.__reduce_ex__(self, protocol)
        made, state = description.construction, dict(description.state) or None
        arguments = (description.name, VERSION, made.args, dict(made.kwargs), made.calls)
        if type(self) is made.kind:
            return rebuilt, arguments, state
        return rebuilt_part, (type(self), *arguments), state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the current state, not only what a pickle would contain."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        state = copy.deepcopy(self.__getstate__(), memo)
        if hasattr(twin, "__setstate__"):
            twin.__setstate__(state)
        else:
            own, slots = state if isinstance(state, tuple) else (state, None)
            vars(twin).update(own or {})
            for name, value in (slots or {}).items():
                setattr(twin, name, value)
        return twin


def _keeping_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """The constructor, which also keeps its arguments, with plain numbers, as the object's
    Construction."""

    @wraps(init)
    @takes_numbers
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        # If constructors call each other, users have called the outermost.
        if _CONSTRUCTION in vars(self):
            init(self, *args, **kwargs)
            return
        kind = next(one for one in type(self).__mro__ if is_holdfast_class(one))
        construction = Construction(kind=kind, args=args, kwargs=kwargs)
        vars(self)[_CONSTRUCTION] = construction
        try:
            init(self, *args, **kwargs)
        except TuneError as error:
            raise for_the_caller(error) from error.__cause__
        vars(self)[_CONSTRUCTION] = self.without_secrets(construction)

    return __init__


# -- describing an object -------------------------------------------------------------------------


def description_of(value: object) -> Description | None:
    """The description of an object; None if it is not holdfast's, or is pickled by a user's own
    method."""
    if is_domain(value):
        kind = type(value)
        construction = Construction(kind=kind, kwargs=_fields_of(value))
        return Description(name=kind.__name__, construction=construction, state={})
    if not isinstance(value, Described) or _has_own_state(type(value)):
        return None
    if not is_holdfast_class(type(value)) and _CONSTRUCTION not in vars(value):
        return None
    try:
        construction = value.construction()
        name = public_name(construction.kind)
        if name is None:
            return None
        replica = construction.initialize(type(value).__new__(type(value)))
    except Exception:  # a user's subclass cannot be rebuilt, or the object is from an old pickle
        return None
    state = dict(_changed_attributes(value, replica))
    return Description(name=name, construction=construction, state=state)


def reduce_domain(domain: Any, protocol: Any) -> Any:
    """`__reduce_ex__` of a domain."""
    if not is_domain(domain):  # of a user's subclass
        return object.__reduce_ex__(domain, protocol)
    return rebuilt, (type(domain).__name__, VERSION, (), _fields_of(domain))


def is_domain(value: object) -> bool:
    """True if it is one of holdfast's domains, which their fields describe completely."""
    kind = type(value)
    return kind.__name__ in _DOMAINS and kind.__module__ == _DOMAINS_MODULE


def is_holdfast_class(kind: type[Any]) -> bool:
    """True if holdfast defines the class, outside of `holdfast.testing`."""
    package, _, module = kind.__module__.partition(".")
    return package == __name__.partition(".")[0] and not module.startswith("testing")


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of one of holdfast's objects, without its Construction."""
    state = value.__getstate__() or {}
    return {name: part for name, part in state.items() if name != _CONSTRUCTION}


def _fields_of(domain: Any) -> dict[str, Any]:
    return {one.name: getattr(domain, one.name) for one in fields(domain)}


def _has_own_state(kind: type[Any]) -> bool:
    """True if a user's subclass defines its own pickled state."""
    users = [one for one in kind.__mro__ if not is_holdfast_class(one) and one is not object]
    names = {"__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__slots__"}
    return not is_holdfast_class(kind) and any(names & vars(one).keys() for one in users)


def _changed_attributes(value: Any, replica: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object that its newly constructed `replica` does not have so."""
    known = state_of(replica)
    for name, part in state_of(value).items():
        if name not in known or not alike(part, known[name]):
            yield name, part


def alike(one: Any, other: Any) -> bool:
    """True if two values are equal; False if that cannot be determined."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if is_dataclass(one):
        return all(alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, Described):
        return alike(state_of(one), state_of(other))
    if is_holdfast_class(type(one)):
        return alike(one.__getstate__(), other.__getstate__())
    try:
        return bool(one == other)
    except Exception:  # the values are arrays, or a user's __eq__ raised
        return False


# -- rebuilding it --------------------------------------------------------------------------------


def rebuilt(name: str, version: int, *made: Any) -> Any:
    """Make the described object, without its state. `made` are the parts of its construction, as
    for `rebuilt_part`. Raises UnknownDescription, and what the class's constructor raises."""
    return rebuilt_part(class_named(name, version), name, version, *made)


def rebuilt_part(
    kind: type[Any],
    name: str,
    version: int,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    calls: tuple[Call, ...] = (),
) -> Any:
    """Like `rebuilt`, for an object of a user's subclass: calls only holdfast's constructor."""
    for method, _, _ in calls:
        if method not in _METHODS:
            raise UnknownDescription(f"{name} is never made by calling {method!r:.100}")
    construction = Construction(
        kind=class_named(name, version), args=tuple(args), kwargs=kwargs, calls=tuple(calls)
    )
    empty: Any = object.__new__(kind)
    found = construction.initialize(empty)
    return set_state(found, {}) if isinstance(found, Described) else found


def set_state(value: Any, state: Mapping[str, Any]) -> Any:
    """Set the state of a rebuilt object. A class converts older states in `__setstate__`."""
    if hasattr(value, "__setstate__"):
        value.__setstate__(dict(state))
    else:
        vars(value).update(state)
    return value


# -- classes by name ------------------------------------------------------------------------------


def public_name(kind: type[Any]) -> str | None:
    """The public name of one of holdfast's classes; None if it has none."""
    for where, home in _PUBLIC.items():
        module = import_module(home)
        if kind.__name__ in module.__all__ and getattr(module, kind.__name__) is kind:
            return f"{where}.{kind.__name__}"
    return None


def class_named(name: str, version: int) -> type[Any]:
    """The class for a name in a file. Raises UnknownDescription."""
    where, _, kind = name.rpartition(".")
    if version != VERSION:
        raise UnknownDescription(f"{name} was written by a newer version of holdfast")
    if not where and kind in _DOMAINS:
        domain: type[Any] = getattr(import_module(_DOMAINS_MODULE), kind)
        return domain
    home = _PUBLIC.get(where)
    if home is None or kind not in import_module(home).__all__:
        raise UnknownDescription(f"this version of holdfast has no {name}")
    found = getattr(import_module(home), kind)
    if not isinstance(found, type) or not issubclass(found, Described):
        raise UnknownDescription(f"{name} is not a class whose objects files hold")
    return found
