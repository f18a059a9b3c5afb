"""Values for the non-plain parts of a config: the user's own objects, or placeholders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.experiment.user_objects.pickling import NotPicklable, dumps, loads
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.values import Opaque, Path, Ref, fold_values, key_name, replace_leaves

# Returns a trial's recorded config with the user's values in it.
ResolveConfig = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoredObject:
    """A placeholder in a config for a user's object that was stored with it.

    `shown` is the part that can be read as plain data, None if `summary` says as much. Reading
    results never unpickles anything: call `load()` to get the object, but only if you trust
    whoever wrote the experiment.
    """

    name: str
    summary: str
    pickled: bytes
    shown: Any = None

    def load(self) -> Any:
        """Unpickle the object. Runs the code that its pickle names, which must be importable
        here."""
        return loads(self.pickled)

    def __repr__(self) -> str:
        excerpt = _excerpt(self.shown)
        return f"<{self.name}: a stored {self.summary}{excerpt}, load() unpickles it>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NamedObject:
    """A placeholder in a config for an object that only the script's `param_space` has.

    `shown` is the part that can be read as plain data, None if `summary` says as much.
    """

    name: str
    summary: str
    shown: Any = None

    def __repr__(self) -> str:
        excerpt = _excerpt(self.shown)
        return f"<{self.name}: {self.summary}{excerpt} of the script's param_space, not stored>"


def _excerpt(shown: Any) -> str:
    return "" if shown is None else f" {shown!r:.60}"


def config_without_code(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's config with a placeholder for each value that is not plain data."""
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
    """Resolves a config with `resolve`, and uses placeholders for the values that it leaves."""

    resolve: ResolveConfig

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return config_without_code(self.resolve(config))


class UsersValues:
    """Resolves configs to the values in the user's `param_space`.

    Values that were stored with the experiment are unpickled only with `unpickles`, by the script
    that created it. Unavailable values stay placeholders. A pickled UsersValues contains the
    space, which is unpickled when a config needs it.
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
                except Exception:  # the user's class is not importable: show the placeholder
                    return found
            case _:
                return found

    def _loaded(self) -> Mapping[str, Any]:
        if self._space is None:
            try:
                self._space = dict(loads(self._pickled or b""))
            except Exception:  # the user's classes are not importable: show placeholders
                self._space = {}
        return self._space

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pickled is None and self._space is not None:
            try:
                self._pickled = dumps(dict(self._space), "param_space")
            except NotPicklable:  # in debug mode nothing had to be pickled
                self._pickled = b""
        return UsersValues._carried, (self._pickled, self._unpickles)

    @classmethod
    def _carried(cls, pickled: bytes, unpickles: bool) -> Self:
        values = cls({}, unpickles=unpickles)
        values._space, values._pickled = None, pickled
        return values
