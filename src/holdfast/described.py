"""Objects of ours in files: a public name and what the constructor was given.

A scheduler, a searcher, a stopper, a domain, a logger, a tracker or a reporter is written down as
the class that users know and the arguments that they gave it, so that its private attributes can
be renamed without a file noticing.
What differs from an object that is made so (a metric that was set later, say) is written down as
well. `rebuilt` and `rebuilt_part` are named in pickles: they stay where they are.
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

# Raised where the arguments of a class come to mean something else; `rebuilt` knows all before.
VERSION: Final = 1
_MADE: Final = "_made_of"
# By what stands for them in files.
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
# What of an object may be called after its constructor, as `Made.calls` has it.
_METHODS: Final = frozenset({"add_evaluated_point", "add_metric_column", "add_parameter_column"})
_DOMAINS: Final = ("Categorical", "Float", "Function", "Integer", "Normal")

Call = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class UnknownDescription(ValueError):
    """A file names a class that this version does not have; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How an object of ours came to be: the outermost class of ours, what its constructor was
    given, and public methods that were called then."""

    kind: type[Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def onto(self, made: Any) -> Any:
        """Make `made`, which is empty, what this says."""
        self.kind.__init__(made, *self.args, **self.kwargs)
        for method, args, kwargs in self.calls:
            getattr(made, method)(*args, **kwargs)
        return made

    def __deepcopy__(self, memo: Any) -> Made:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a file holds of an object: the public name of its class, and how it was made.

    `state` are attributes that an object made so would not have, or not so.
    """

    name: str
    made: Made
    state: Mapping[str, Any]


class Described:
    """Base of what users make, and files hold, by a class of ours and its arguments.

    `needs_trust` says why a file that nobody trusts may have no such object made, "" where it may.
    """

    needs_trust: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls) and is_ours(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    def made_of(self) -> Made:
        """What makes an object like this; a class says so where an argument cannot be used twice
        (a generator, a file that may be gone)."""
        found: Made | None = vars(self).get(_MADE)
        return found or Made(kind=type(self))

    def may_keep(self, made: Made) -> Made:
        """What of the constructor's arguments a file may hold: a class with secrets leaves them
        out. Called once, when the object has been made."""
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
        """The state, as it is now."""
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
        # Of several constructors of ours that call each other, the outermost was called by users.
        if _MADE in vars(self):
            init(self, *args, **kwargs)
            return
        kind = next(one for one in type(self).__mro__ if is_ours(one))
        made = vars(self)[_MADE] = Made(kind=kind, args=args, kwargs=kwargs)
        init(self, *args, **kwargs)
        vars(self)[_MADE] = self.may_keep(made)

    return __init__


def reduced(value: Any, protocol: Any) -> Any:
    """`__reduce_ex__` of a domain."""
    if not is_domain(value):  # a user's
        return object.__reduce_ex__(value, protocol)
    given = {one.name: getattr(value, one.name) for one in fields(value)}
    return rebuilt, (type(value).__name__, VERSION, (), given)


def is_ours(kind: type[Any]) -> bool:
    package, _, module = kind.__module__.partition(".")
    return package == __name__.partition(".")[0] and not module.startswith("testing")


def description_of(value: object) -> Description | None:
    """None for what cannot be described so: no object of ours, or one with its own idea of it."""
    if is_domain(value):
        given = {one.name: getattr(value, one.name) for one in fields(value)}  # type: ignore[arg-type]
        made = Made(kind=type(value), kwargs=given)
        return Description(name=type(value).__name__, made=made, state={})
    if not isinstance(value, Described) or _has_own_state(type(value)):
        return None
    if not is_ours(type(value)) and _MADE not in vars(value):
        return None
    try:
        made = value.made_of()
        name = name_of(made.kind)
        if name is None:
            return None
        replica = made.onto(type(value).__new__(type(value)))
    except Exception:  # a user's subclass that is not ready for it, an object of an old pickle
        return None
    return Description(name=name, made=made, state=dict(_differing(value, replica)))


def _has_own_state(kind: type[Any]) -> bool:
    """Whether a user's subclass says itself what is kept of it."""
    if is_ours(kind):
        return False
    own = [one for one in kind.__mro__ if not is_ours(one) and one is not object]
    names = {"__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__slots__"}
    return any(names & vars(one).keys() for one in own)


def _differing(value: Any, replica: Any) -> Iterator[tuple[str, Any]]:
    known = state_of(replica)
    for name, part in state_of(value).items():
        if name not in known or not alike(part, known[name]):
            yield name, part


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object of ours, without what it was made of."""
    return {name: part for name, part in (value.__getstate__() or {}).items() if name != _MADE}


def alike(one: Any, other: Any) -> bool:
    """Whether they are the same value, as far as can be told: in doubt they are not."""
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
    if is_ours(type(one)):
        return alike(one.__getstate__(), other.__getstate__())
    try:
        return bool(one == other)
    except Exception:  # arrays, and whatever a user's own __eq__ raises
        return False


def is_domain(value: object) -> bool:
    """Whether it is one of our domains, which are what their fields say."""
    kind = type(value)
    return kind.__name__ in _DOMAINS and kind.__module__ == "holdfast.trial.domains"


# -- classes by name ------------------------------------------------------------------------------


def name_of(kind: type[Any]) -> str | None:
    """The public name of a class of ours, None for one that has none."""
    for where, home in _PUBLIC.items():
        module = import_module(home)
        if kind.__name__ in module.__all__ and getattr(module, kind.__name__) is kind:
            return f"{where}.{kind.__name__}"
    return None


def class_of(name: str, version: int) -> type[Any]:
    """The class that a file names. Raises UnknownDescription."""
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
    """The object of a description, but for its state. Raises UnknownDescription, and what the
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
    """The same for an object of a user's class, of which only the part that is ours is made."""
    for method, _, _ in calls:
        if method not in _METHODS:
            raise UnknownDescription(f"{name} is never made by calling {method!r:.100}")
    made = Made(kind=class_of(name, version), args=tuple(args), kwargs=kwargs, calls=tuple(calls))
    empty: Any = object.__new__(kind)
    found = made.onto(empty)
    return settle(found, {}) if isinstance(found, Described) else found


def settle(made: Any, state: Mapping[str, Any]) -> Any:
    """Give an object its state, and its class a say in what has changed since it was written."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(dict(state))
    else:
        vars(made).update(state)
    return made


def argument(made: Made, name: str) -> Any:
    """What was given for a parameter, None for nothing."""
    return _by_name(made).get(name)


def without(made: Made, *names: str, **anew: Any) -> Made:
    """The same, with arguments left out or replaced; all of them by name."""
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
