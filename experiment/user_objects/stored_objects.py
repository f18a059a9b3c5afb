"""Users' objects as fields of a file: plain data where they are that, and else pickled.

Numbers, texts, containers of them and objects of ours (`holdfast.described`) are a tree that
MessagePack holds and anybody can read. What is the user's own is numbered in it, and pickled in a
list next to it: together, so that what they share stays shared.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.described import (
    VERSION,
    Description,
    UnknownDescription,
    class_of,
    description_of,
    is_domain,
    rebuilt,
    settle,
)
from holdfast.experiment.user_objects.pickling import NotPicklable, dumps, loads
from holdfast.trial.values import SETS, has_text_keys, is_plain

_MARK: Final = "__holdfast__"
_INT64: Final = 1 << 63
_DEEPEST: Final = 60  # far from what MessagePack and Python's stack allow


class NeedsTrust(ValueError):
    """The field holds what can only be had by running code that its file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredField:
    """One object. `objects` is a pickled list of what is the user's in it, None where nothing is.

    `pickled`, of format 1, is all of it, and `plain` says nothing.
    """

    plain: Any = None
    objects: bytes | None = None
    pickled: bytes | None = None


def stored(value: object, what: str) -> StoredField:
    """Raises NotPicklable, naming the part that is at fault."""
    tree = _Tree()
    try:
        plain = tree.encode(value)
    except (RecursionError, UnknownDescription):  # contains itself
        return StoredField(pickled=dumps(value, what))
    if not tree.objects:
        return StoredField(plain=plain)
    try:
        return StoredField(plain=plain, objects=dumps(tree.objects, what))
    except NotPicklable:
        return StoredField(pickled=dumps(value, what))  # which names the part by its place


def restored(field: StoredField, *, trusted: bool) -> Any:
    """The object of a field.

    Raises NeedsTrust where it is not `trusted` and not plain, UnknownDescription, and whatever
    the user's own classes raise.
    """
    if field.pickled is not None:
        return loads(field.pickled) if trusted else plainly(field.pickled)
    if field.objects is None:
        return _Grown((), trusted=trusted).decode(field.plain)
    if not trusted:
        raise NeedsTrust("it holds objects that are pickled")
    return _Grown(loads(field.objects), trusted=True).decode(field.plain)


def plainly(pickled: bytes) -> Any:
    """What a pickle of numbers, texts and containers holds. Raises NeedsTrust for any other."""
    try:
        return PlainUnpickler(io.BytesIO(pickled)).load()
    except Exception as error:  # pickle raises nearly anything for broken bytes
        raise NeedsTrust(f"it is pickled ({error})") from error


class PlainUnpickler(pickle.Unpickler):
    """Knows no class and no function, so that a file from elsewhere can have nothing called."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(
            f"it names {module_name}.{global_name}, and may only hold data"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it names something outside of it, and may only hold data")


class _Tree:
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
        if found is not None and (is_domain(value) or type(value) is found.made.kind):
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
        made = found.made
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


class _Grown:
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
            case {"__holdfast__": "tuple", "items": list(items)}:
                return tuple(map(self.decode, items))
            case {"__holdfast__": "set", "items": list(items)}:
                return set(map(self.decode, items))
            case {"__holdfast__": "frozenset", "items": list(items)}:
                return frozenset(map(self.decode, items))
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
        why = getattr(class_of(name, version), "needs_trust", "")
        if why and not self._trusted:
            raise NeedsTrust(f"{name} {why}")
        calls = tuple(
            (method, tuple(self.decode(given)), self.decode(named))
            for method, given, named in tree.get("calls", [])
        )
        made = rebuilt(name, version, tuple(self.decode(args)), self.decode(kwargs), calls)
        return settle(made, self.decode(state)) if state else made


def _marked(kind: str, **fields: Any) -> dict[str, Any]:
    return {_MARK: kind, **fields}
