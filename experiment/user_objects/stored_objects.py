"""Users' objects as fields of a file: plain data where possible, otherwise pickled.

Numbers, text, containers of them and holdfast's own objects (`holdfast.described`) form a tree
that MessagePack can hold and anybody can read. The user's objects are numbered in the tree and
pickled in a list next to it: together, so that shared parts stay shared. A `Placeholder` stands
for an object that must not be unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from holdfast.dataclass import dataclass
from holdfast.described import (
    VERSION,
    Description,
    UnknownDescription,
    class_named,
    description_of,
    is_domain,
    rebuilt,
    set_state,
)
from holdfast.experiment.user_objects.pickling import NotPicklable, dumps, loads
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.values import (
    SETS,
    Opaque,
    Path,
    Ref,
    fold_values,
    has_text_keys,
    is_plain,
    key_name,
    replace_leaves,
)

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


_MARK: Final = "__holdfast__"
_CONTAINERS: Final = {"tuple": tuple, "set": set, "frozenset": frozenset}
_INT64: Final = 1 << 63
_DEEPEST: Final = 60  # far below the limits of MessagePack and Python's stack


class NeedsTrust(ValueError):
    """The field holds an object that can only be loaded by running code that its file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredField:
    """One object.

    `objects` is a pickled list of the user's objects in it, None if there are none. `pickled` is
    the whole object if it contains itself or is very deep; `plain` is then not used.
    """

    plain: Any = None
    objects: bytes | None = None
    pickled: bytes | None = None


def stored(value: object, what: str) -> StoredField:
    """Encode an object. Raises NotPicklable, naming the faulty part."""
    tree = _Encoder()
    try:
        plain = tree.encode(value)
    except (RecursionError, UnknownDescription):  # contains itself
        return StoredField(pickled=dumps(value, what))
    if not tree.objects:
        return StoredField(plain=plain)
    try:
        return StoredField(plain=plain, objects=dumps(tree.objects, what))
    except NotPicklable:
        return StoredField(pickled=dumps(value, what))  # this error names the part by its path


def restored(field: StoredField, *, trusted: bool) -> Any:
    """The object of a field.

    Raises NeedsTrust if the field is neither `trusted` nor plain, UnknownDescription, and whatever
    the user's classes raise.
    """
    if field.pickled is not None:
        if not trusted:
            raise NeedsTrust("it is pickled")
        return loads(field.pickled)
    if field.objects is None:
        return _Decoder((), trusted=trusted).decode(field.plain)
    if not trusted:
        raise NeedsTrust("it holds objects that are pickled")
    return _Decoder(loads(field.objects), trusted=True).decode(field.plain)


class _Encoder:
    """Encodes one field; `objects` are the user's, in the order of their numbers."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._made: dict[int, int] = {}
        self._depth = 0

    def encode(self, value: Any) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        try:
            return self._encode(value)
        finally:
            self._depth -= 1

    def _encode(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            return [self.encode(item) for item in value]
        if kind is tuple:
            return _marked("tuple", items=[self.encode(item) for item in value])
        if kind is dict:
            return self._of_dict(value)
        if kind is int and not -_INT64 <= value < 2 * _INT64:
            return _marked("int", hex=hex(value))
        if is_plain(value):
            is_set = kind in SETS
            return _marked(kind.__name__, items=[*map(self.encode, value)]) if is_set else value
        found = description_of(value)
        if found is not None and (is_domain(value) or type(value) is found.construction.kind):
            return self._of_made(value, found)
        return self._of_object(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        if has_text_keys(value) and _MARK not in value:
            return {key: self.encode(item) for key, item in value.items()}
        pairs = [[self.encode(key), self.encode(item)] for key, item in value.items()]
        return _marked("dict", pairs=pairs)

    def _of_made(self, value: Any, found: Description) -> Any:
        if not is_domain(value) and id(value) in self._made:
            return _marked("again", number=self._made[id(value)])
        made = found.construction
        calls = [
            [name, [*map(self.encode, args)], self.encode(dict(kwargs))]
            for name, args, kwargs in made.calls
        ]
        tree = _marked(
            "made",
            version=VERSION,
            args=[*map(self.encode, made.args)],
            kwargs=self.encode(dict(made.kwargs)),
            **{"class": found.name},
            **({"calls": calls} if calls else {}),
            **({"state": self.encode(dict(found.state))} if found.state else {}),
        )
        if not is_domain(value):
            self._made[id(value)] = len(self._made)
        return tree

    def _of_object(self, value: Any) -> Any:
        number = self._numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return _marked("object", number=number)


class _Decoder:
    """Decodes one field."""

    def __init__(self, objects: Any, *, trusted: bool) -> None:
        self._objects = objects
        self._trusted = trusted
        self._made: list[Any] = []

    def decode(self, tree: Any) -> Any:
        if type(tree) is list:
            return [self.decode(item) for item in tree]
        if type(tree) is not dict:
            return tree
        if _MARK not in tree:
            return {key: self.decode(item) for key, item in tree.items()}
        match tree:
            case {"__holdfast__": "tuple" | "set" | "frozenset" as kind, "items": list(items)}:
                return _CONTAINERS[kind](map(self.decode, items))
            case {"__holdfast__": "dict", "pairs": list(pairs)}:
                return {self.decode(key): self.decode(item) for key, item in pairs}
            case {"__holdfast__": "int", "hex": str(text)}:
                return int(text, 16)
            case {"__holdfast__": "object", "number": int(number)} if number >= 0:
                return self._objects[number]
            case {"__holdfast__": "again", "number": int(number)} if number >= 0:
                return self._made[number]
            case {"__holdfast__": "made", "class": str(name), "version": int(version)}:
                made = self._of(name, version, tree)
                if not is_domain(made):
                    self._made.append(made)
                return made
            case _:
                raise UnknownDescription(f"an unknown mark: {tree!r:.100}")

    def _of(self, name: str, version: int, tree: Mapping[str, Any]) -> Any:
        args, kwargs, state = tree.get("args", []), tree.get("kwargs", {}), tree.get("state", {})
        why = getattr(class_named(name, version), "needs_trust", "")
        if why and not self._trusted:
            raise NeedsTrust(f"{name} {why}")
        calls = tuple(
            (method, tuple(self.decode(given)), self.decode(named))
            for method, given, named in tree.get("calls", [])
        )
        made = rebuilt(name, version, tuple(self.decode(args)), self.decode(kwargs), calls)
        return set_state(made, self.decode(state)) if state else made


def _marked(kind: str, **fields: Any) -> dict[str, Any]:
    return {_MARK: kind, **fields}
