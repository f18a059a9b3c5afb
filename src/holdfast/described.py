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

# Increase it when arguments of a class change their meaning; `rebuilt` must read all earlier ones.
VERSION: Final = 1
_MADE: Final = "_made_of"
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
# The methods that `Made.calls` may contain.
_METHODS: Final = frozenset({"add_evaluated_point", "add_metric_column", "add_parameter_column"})
_DOMAINS: Final = ("Categorical", "Float", "Function", "Integer", "Normal")

Call = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class UnknownDescription(ValueError):
    """A file names a class that this version does not have; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How one of holdfast's objects was made: the class whose constructor the user called, its
    arguments, and the public methods that were called afterwards."""

    kind: type[Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def onto(self, made: Any) -> Any:
        """Initialize `made`, a new object, in the same way."""
        self.kind.__init__(made, *self.args, **self.kwargs)
        for method, args, kwargs in self.calls:
            getattr(made, method)(*args, **kwargs)
        return made

    def __deepcopy__(self, memo: Any) -> Made:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An object in a file: the public name of its class, and how it was made.

    `state` has the attributes that differ from those of an object made in the same way.
    """

    name: str
    made: Made
    state: Mapping[str, Any]


class Described:
    """Base class of holdfast's objects that users construct and files contain.

    `needs_trust`: the reason why an untrusted file must not create such an object; "" if it may.
    """

    needs_trust: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls) and is_holdfast_class(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    def made_of(self) -> Made:
        """How to make an equal object. A class overrides this if an argument cannot be used twice,
        such as a generator or a file that may be gone."""
        found: Made | None = vars(self).get(_MADE)
        return found or Made(kind=type(self))

    def without_secrets(self, made: Made) -> Made:
        """The constructor's arguments that a file may contain; a class with secrets removes them.
        Called once, after construction."""
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self).__reduce__ is not object.__reduce__:
            return self.__reduce__()
        found = description_of(self)
        if found is None:
            return object.__reduce_ex__(self, protocol)
        made = found.made
        plain = (found.name, VERSION, made.args, dict(made.kwargs), made.calls)
        if type(self) is made.kind:
            return rebuilt, plain, dict(found.state) or None
        return rebuilt_part, (type(self), *plain), dict(found.state) or None

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


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        # If constructors call each other, users have called the outermost.
        if _MADE in vars(self):
            init(self, *args, **kwargs)
            return
        kind = next(one for one in type(self).__mro__ if is_holdfast_class(one))
        made = vars(self)[_MADE] = Made(kind=kind, args=args, kwargs=kwargs)
        init(self, *args, **kwargs)
        vars(self)[_MADE] = self.without_secrets(made)

    return __init__


def reduced(value: Any, protocol: Any) -> Any:
    """`__reduce_ex__` of a domain."""
    if not is_domain(value):  # a user's
        return object.__reduce_ex__(value, protocol)
    given = {one.name: getattr(value, one.name) for one in fields(value)}
    return rebuilt, (type(value).__name__, VERSION, (), given)


def is_holdfast_class(kind: type[Any]) -> bool:
    package, _, module = kind.__module__.partition(".")
    return package == __name__.partition(".")[0] and not module.startswith("testing")


def description_of(value: object) -> Description | None:
    """The description of an object; None if it is not holdfast's, or is pickled by a user's own
    method."""
    if is_domain(value):
        given = {one.name: getattr(value, one.name) for one in fields(value)}  # type: ignore[arg-type]
        made = Made(kind=type(value), kwargs=given)
        return Description(name=type(value).__name__, made=made, state={})
    if not isinstance(value, Described) or _has_own_state(type(value)):
        return None
    if not is_holdfast_class(type(value)) and _MADE not in vars(value):
        return None
    try:
        made = value.made_of()
        name = name_of(made.kind)
        if name is None:
            return None
        replica = made.onto(type(value).__new__(type(value)))
    except Exception:  # a user's subclass cannot be rebuilt, or the object is from an old pickle
        return None
    return Description(name=name, made=made, state=dict(_differing(value, replica)))


def _has_own_state(kind: type[Any]) -> bool:
    """Whether a user's subclass defines its own pickled state."""
    if is_holdfast_class(kind):
        return False
    own = [one for one in kind.__mro__ if not is_holdfast_class(one) and one is not object]
    names = {"__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__slots__"}
    return any(names & vars(one).keys() for one in own)


def _differing(value: Any, replica: Any) -> Iterator[tuple[str, Any]]:
    known = state_of(replica)
    for name, part in state_of(value).items():
        if name not in known or not alike(part, known[name]):
            yield name, part


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of one of holdfast's objects, without its `Made`."""
    return {name: part for name, part in (value.__getstate__() or {}).items() if name != _MADE}


def alike(one: Any, other: Any) -> bool:
    """Whether two values are equal; False if that cannot be determined."""
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


def is_domain(value: object) -> bool:
    """Whether it is one of holdfast's domains, which their fields describe completely."""
    kind = type(value)
    return kind.__name__ in _DOMAINS and kind.__module__ == "holdfast.trial.domains"


# -- classes by name ------------------------------------------------------------------------------


def name_of(kind: type[Any]) -> str | None:
    """The public name of one of holdfast's classes; None if it has none."""
    for where, home in _PUBLIC.items():
        module = import_module(home)
        if kind.__name__ in module.__all__ and getattr(module, kind.__name__) is kind:
            return f"{where}.{kind.__name__}"
    return None


def class_of(name: str, version: int) -> type[Any]:
    """The class for a name in a file. Raises UnknownDescription."""
    where, _, kind = name.rpartition(".")
    home = _PUBLIC.get(where)
    if version != VERSION:
        raise UnknownDescription(f"{name} was written by a newer version of holdfast")
    if not where and kind in _DOMAINS:
        found: type[Any] = getattr(import_module("holdfast.trial.domains"), kind)
        return found
    if home is None or kind not in import_module(home).__all__:
        raise UnknownDescription(f"this version of holdfast has no {name}")
    found = getattr(import_module(home), kind)
    if not isinstance(found, type) or not issubclass(found, Described):
        raise UnknownDescription(f"{name} is not a class whose objects files hold")
    return found


def rebuilt(
    name: str,
    version: int,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    calls: tuple[Call, ...] = (),
) -> Any:
    """Make the described object, without its state. Raises UnknownDescription, and what the
    class's constructor raises."""
    kind = class_of(name, version)
    return rebuilt_part(kind, name, version, args, kwargs, calls)


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
    made = Made(kind=class_of(name, version), args=tuple(args), kwargs=kwargs, calls=tuple(calls))
    empty: Any = object.__new__(kind)
    found = made.onto(empty)
    return settle(found, {}) if isinstance(found, Described) else found


def settle(made: Any, state: Mapping[str, Any]) -> Any:
    """Set the state of a rebuilt object. A class converts older states in `__setstate__`."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(dict(state))
    else:
        vars(made).update(state)
    return made


def argument(made: Made, name: str) -> Any:
    """The argument for a parameter; None if there was none."""
    return _by_name(made).get(name)


def without(made: Made, *names: str, **anew: Any) -> Made:
    """A copy of `made` without the arguments `names`, with `anew` replaced or added."""
    kept = {name: value for name, value in _by_name(made).items() if name not in names}
    return replace(made, args=(), kwargs={**kept, **anew})


def _by_name(made: Made) -> dict[str, Any]:
    import inspect

    signature = inspect.signature(made.kind)
    given = dict(signature.bind(*made.args, **made.kwargs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(parameter.name, {})
    return given
