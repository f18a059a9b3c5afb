"""Encodes dataclasses as plain data, by the types of their fields; see `decoding.decode`."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from holdfast.trial.bounds import SPARSE, Stored

Write = Callable[[Any], Any]
_COMPILED: dict[type, Write] = {}


def to_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as a dict of plain values."""
    write = _COMPILED.get(type(value))
    if write is None:
        write = _COMPILED[type(value)] = _compile(type(value))
    plain: dict[str, Any] = write(value)
    return plain


def _compile(kind: type) -> Write:
    """Compile a dict literal, which takes a quarter of the time of an attrgetter and a `zip`."""
    hints = get_type_hints(kind, include_extras=True)
    scope: dict[str, Any] = {}
    items = []
    for field in fields(kind):
        name = field.name
        write = writer_of(hints[name])
        scope[f"write_{name}"] = write
        items.append(f"{name!r}: " + (f"write_{name}(value.{name})" if write else f"value.{name}"))
    made: Write = eval(f"lambda value: {{{', '.join(items)}}}", scope)
    sparse = {one.name: one.default for one in fields(kind) if _is_sparse(hints[one.name])}
    return _without(made, sparse) if sparse else made


def _is_sparse(hint: Any) -> bool:
    return get_origin(hint) is Annotated and SPARSE in get_args(hint)


def _without(write: Write, defaults: Mapping[str, Any]) -> Write:
    """Leave out the fields that have these values."""

    def trimmed(value: Any) -> dict[str, Any]:
        plain: dict[str, Any] = write(value)
        for name, default in defaults.items():
            if plain[name] == default:
                del plain[name]
        return plain

    return trimmed


def writer_of(hint: Any) -> Write | None:
    """A function that makes a value of this type plain; None if such values already are."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        notes = (note for note in parts[1:] if isinstance(note, Stored))
        form = next(notes, None)
        return writer_of(parts[0]) if form is None else form.write
    if origin in (Union, types.UnionType):
        several = [write for part in parts if (write := writer_of(part)) is not None]
        return _optional(several[0]) if several else None
    if origin is set:
        return sorted
    if origin in (tuple, Sequence):
        inner = writer_of(parts[0])
        return _each(inner) if inner is not None else list if origin is tuple else None
    if origin in (Mapping, dict):
        inner = writer_of(parts[1])
        return None if inner is None else _table(inner)
    return to_fields if is_dataclass(hint) else None


def _optional(write: Write) -> Write:
    return lambda value: None if value is None else write(value)


def _each(write: Write) -> Write:
    return lambda value: [write(item) for item in value]


def _table(write: Write) -> Write:
    return lambda value: {key: write(item) for key, item in value.items()}
