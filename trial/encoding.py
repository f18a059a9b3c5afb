"""Converts configurations to and from JSON and msgpack; other types of values carry a mark."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from holdfast.names import shown
from holdfast.schema import DEEPEST, LEAVES, Stored, check_plain
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.values import (
    SETS,
    Opaque,
    Path,
    Ref,
    has_plain_keys,
    has_text_keys,
    in_order,
    is_plain,
    key_name,
)

_INT64: Final = 1 << 63
_MARK: Final = "__holdfast__"
_AS_IT_IS: Final = frozenset({type(None), bool, float})


def to_plain(value: Any) -> Any:
    """Convert `value` for JSON and msgpack; types that they lack (a tuple, a Ref) are marked.

    Raises InvalidSearchSpace for a value that cannot be stored.
    """
    return _encode(value, ())


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`. Raises InvalidSearchSpace for an unknown mark."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {
            key: item if type(item) in LEAVES else from_plain(item) for key, item in value.items()
        }
    return _decode_marked(value)


def _encode(value: Any, path: Path) -> Any:
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is list:
        return _each(value, path)
    if kind is tuple:
        return _marked("tuple", items=_each(value, path))
    if has_text_keys(value):
        encoded = {key: _encode(item, (*path, key)) for key, item in value.items()}
        return _marked("dict", items=encoded) if _MARK in value else encoded
    if kind is Ref:
        named = _marked("ref", path=list(value.path), index=value.index, summary=value.summary)
        return named | _shown(value, path)
    if kind is Opaque:
        carried = _marked("opaque", base64=_to_text(value.pickled), summary=value.summary)
        return carried | _shown(value, path)
    if has_plain_keys(value):
        pairs = ([_encode(key, path), _encode(item, (*path, key))] for key, item in value.items())
        return _marked("dict", pairs=list(pairs))
    if is_plain(value):
        return _encode_plain(value, path)
    raise InvalidSearchSpace(f"{key_name(path)}: a {kind.__name__} cannot be stored as it is")


def _encode_plain(value: Any, path: Path) -> Any:
    kind = type(value)
    if kind is bytes:
        return _marked("bytes", base64=_to_text(value))
    if kind is int and not -_INT64 <= value < 2 * _INT64:
        return _marked("int", hex=hex(value))  # in decimal, Python refuses a long one
    if kind in SETS:
        return _marked(kind.__name__, items=_each(in_order(value), path))
    return value


def _each(values: Iterable[Any], path: Path) -> list[Any]:
    return [_encode(item, (*path, i)) for i, item in enumerate(values)]


def _shown(value: Ref | Opaque, path: Path) -> dict[str, Any]:
    return {} if value.shown is None else {"shown": _encode(value.shown, path)}


def _marked(kind: str, **fields: Any) -> dict[str, Any]:
    return {_MARK: kind, **fields}


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode_marked(fields: dict[str, Any]) -> Any:
    match fields:
        case {"__holdfast__": "tuple", "items": list(items)}:
            return tuple(map(from_plain, items))
        case {"__holdfast__": "ref", "path": list(path), "index": index, "summary": summary}:
            shown = from_plain(fields.get("shown"))
            return Ref(path=tuple(path), index=index, summary=summary, shown=shown)
        case {"__holdfast__": "opaque", "base64": str(text), "summary": summary}:
            shown = from_plain(fields.get("shown"))
            return Opaque(pickled=base64.b64decode(text), summary=summary, shown=shown)
        case {"__holdfast__": "dict", "items": dict(items)}:
            return {key: from_plain(item) for key, item in items.items()}
        case {"__holdfast__": "dict", "pairs": list(pairs)}:
            return {from_plain(key): from_plain(item) for key, item in pairs}
        case {"__holdfast__": "set", "items": list(items)}:
            return set(map(from_plain, items))
        case {"__holdfast__": "frozenset", "items": list(items)}:
            return frozenset(map(from_plain, items))
        case {"__holdfast__": "int", "hex": str(text)}:
            return int(text, 16)
        case {"__holdfast__": "bytes", "base64": str(text)}:
            return base64.b64decode(text)
        case _:
            raise InvalidSearchSpace(f"a stored configuration has an unknown mark: {fields!r}")


def _read_config(plain: Any) -> dict[str, Any]:
    # A marked value, such as a tuple, takes two levels of nesting in a record.
    config = from_plain(check_plain(plain, "it", 2 * DEEPEST + 2))
    if type(config) is not dict:
        raise ValueError(f"must be a table of names and values, not {shown(config)}")
    return config


# A trial's configuration, or data that contains parts of one.
Config = Annotated[Mapping[str, Any], Stored(_read_config, to_plain)]
