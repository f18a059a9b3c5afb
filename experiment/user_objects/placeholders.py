"""What stands in a config for what is no plain data: the user's own values, or placeholders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.experiment.user_objects.pickling import NotPicklable, dumps, loads
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.values import Opaque, Path, Ref, fold_values, key_name, replace_leaves

# Gives a trial's config, as it is recorded, with the user's values in it.
ResolveConfig = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoredObject:
    """Stands in a config for an object of the user's that was stored with it.

    `shown` is what can be read of it as plain data, None where `summary` says it all. Reading
    results never unpickles anything: call `load()` to have the object, only where you trust who
    wrote the experiment.
    """

    name: str
    summary: str
    pickled: bytes
    shown: Any = None

    def load(self) -> Any:
        """The object. Runs the code that its pickle names, which must be importable here."""
        return loads(self.pickled)

    def __repr__(self) -> str:
        told = _told(self.shown)
        return f"<{self.name}: a stored {self.summary}{told}, load() unpickles it>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NamedObject:
    """Stands in a config for an object that only the script's `param_space` holds.

    `shown` is what can be read of it as plain data, None where `summary` says it all.
    """

    name: str
    summary: str
    shown: Any = None

    def __repr__(self) -> str:
        told = _told(self.shown)
        return f"<{self.name}: {self.summary}{told} of the script's param_space, not stored>"


def _told(shown: Any) -> str:
    return "" if shown is None else f" {shown!r:.60}"


def config_without_code(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's config with a placeholder for each value that is no plain data."""
    resolved: dict[str, Any] = replace_leaves(dict(config), _placeholder)
    return resolved


def _placeholder(path: Path, leaf: Any) -> Any:
    match leaf:
        case Opaque():
            return StoredObject(
                name=key_name(path), summary=leaf.summary, pickled=leaf.pickled, shown=leaf.shown
            )
        case Ref():
            return NamedObject(name=key_name(path), summary=leaf.summary, shown=leaf.shown)
        case _:
            return leaf


@dataclass(frozen=True, slots=True)
class Completed:
    """Resolves with `resolve`, and puts placeholders for what it leaves as it is recorded."""

    resolve: ResolveConfig

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return config_without_code(self.resolve(config))


class UsersValues:
    """Resolves configs to the values that stand in the user's `param_space`.

    What the experiment has stored beside it is unpickled only with `unpickles`: by the script
    that made it. What cannot be had stays a placeholder.

    A pickle of it carries the space, to be unpickled when a config is asked for that needs it.
    """

    def __init__(self, param_space: Mapping[str, Any], *, unpickles: bool) -> None:
        self._space: Mapping[str, Any] | None = param_space
        self._pickled: bytes | None = None
        self._unpickles = unpickles

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        resolved: dict[str, Any] = replace_leaves(dict(config), self._value)
        return resolved

    def _value(self, path: Path, leaf: Any) -> Any:
        found = _placeholder(path, leaf)
        match found:
            case NamedObject():
                try:
                    return fold_values(leaf, self._loaded())
                except InvalidSearchSpace:
                    return found
            case StoredObject() if self._unpickles:
                try:
                    return found.load()
                except Exception:  # the user's class is not here: told by what stands there
                    return found
            case _:
                return found

    def _loaded(self) -> Mapping[str, Any]:
        if self._space is None:
            try:
                self._space = dict(loads(self._pickled or b""))
            except Exception:  # the user's classes are not here: told by what stands there
                self._space = {}
        return self._space

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pickled is None and self._space is not None:
            try:
                self._pickled = dumps(dict(self._space), "param_space")
            except NotPicklable:  # in the debug mode nothing had to travel
                self._pickled = b""
        return UsersValues._carried, (self._pickled, self._unpickles)

    @classmethod
    def _carried(cls, pickled: bytes, unpickles: bool) -> Self:
        values = cls({}, unpickles=unpickles)
        values._space, values._pickled = None, pickled
        return values
