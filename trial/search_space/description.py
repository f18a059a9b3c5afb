"""Describes a search space as text. A restore compares its space with the stored description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.trial.space import (
    INT64,
    Categorical,
    Float,
    Function,
    Integer,
    Normal,
    grid_values,
    is_grid,
    is_searched,
)
from holdfast.trial.values import (
    READ_BITS,
    SETS,
    Path,
    has_text_keys,
    in_order,
    is_plain,
    key_name,
    unwrap_scalar,
)

_SHOWN_CHARS: Final = 120


def describe(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe `space` in JSON and msgpack values: path, text and whether it is varied, per key.

    Values that are not plain are described by their types only, and functions not at all, so a
    restore may replace them.
    """
    return [
        {"path": list(path), "text": text_of(value), "varied": is_searched(value)}
        for path, value in _parts(space, ())
    ]


def changes(old: Sequence[Mapping[str, Any]], space: Mapping[str, Any]) -> list[str]:
    """The `differences` between a stored description and `space`."""
    return differences(old, describe(space))


def differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    """The changes between two descriptions, one line per key; empty if there are none.

    The order of the varied keys matters as well: it decides which random number each key gets.
    """
    before, after = _texts(old), _texts(new)
    lines = [
        "{}: was {}, now {}".format(
            key_name(path), *_excerpts(before.get(path, "absent"), after.get(path, "absent"))
        )
        for path in before | after
        if before.get(path) != after.get(path)
    ]
    was, now = _varied_names(old), _varied_names(new)
    if not lines and was != now:
        lines.append(f"order of the varied keys: was {', '.join(was)}, now {', '.join(now)}")
    return lines


def text_of(value: Any) -> str:
    """A value or a domain as users write it; for a value that is not plain, its type."""
    value = unwrap_scalar(value)
    kind = type(value)
    if isinstance(value, Categorical):
        return f"choice([{_joined(value.categories)}])"
    if is_grid(value):
        return f"grid_search([{_joined(grid_values(value) or ())}])"
    if isinstance(value, (Float, Integer, Normal, Function)):
        return str(value)
    if _has_repr(value):
        return repr(value)
    if kind is list or kind is tuple:
        inside = _joined(value)
        return f"[{inside}]" if kind is list else f"({inside})"
    if _has_text(value):
        return _dict_text(value)
    if not is_plain(value):
        return f"<{kind.__name__}>"
    return _plain_text(value)


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(text_of(value) for value in values)


def _dict_text(value: Mapping[Any, Any]) -> str:
    pairs = (f"{_key(key)}: {text_of(item)}" for key, item in value.items())
    return f"{{{', '.join(pairs)}}}"


def _key(key: Any) -> str:
    return repr(key) if type(key) is str else text_of(key)


def _plain_text(value: Any) -> str:
    """The text without `repr`: a set's order differs between processes, and a long integer has no
    repr."""
    if type(value) is dict:
        return _dict_text(value)
    if type(value) in SETS:
        return f"{type(value).__name__}([{_joined(in_order(value))}])"
    return str(value) if value.bit_length() <= READ_BITS else hex(value)


def _has_repr(value: Any) -> bool:
    """True for a plain value whose `repr` is its text: it has no set and no long integer."""
    return is_plain(value) and not _needs_text(value)


def _needs_text(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return not -INT64 <= value < 2 * INT64
    if kind is dict:
        return not has_text_keys(value) or any(map(_needs_text, value.values()))
    return kind in SETS or (kind in (list, tuple) and any(map(_needs_text, value)))


def _parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    value = unwrap_scalar(value)
    searched = is_searched(value)
    if isinstance(value, dict) and value and not is_grid(value) and (searched or _has_text(value)):
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif isinstance(value, (list, tuple)) and (searched or not _has_repr(value)):
        for i, item in enumerate(value):
            yield from _parts(item, (*path, i))
    elif path:
        yield path, value


def _has_text(value: dict[Any, Any]) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)


def _texts(description: Sequence[Mapping[str, Any]]) -> dict[Path, str]:
    return {tuple(entry["path"]): entry["text"] for entry in description}


def _varied_names(description: Sequence[Mapping[str, Any]]) -> list[str]:
    return [key_name(tuple(entry["path"])) for entry in description if entry["varied"]]


def _excerpts(was: str, now: str) -> tuple[str, str]:
    """Both texts, cut around their first difference if they are long."""
    if max(len(was), len(now)) <= _SHOWN_CHARS:
        return was, now
    pairs = enumerate(zip(was, now, strict=False))
    shared = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    start = max(0, shared - _SHOWN_CHARS // 2)
    return _excerpt(was, start), _excerpt(now, start)


def _excerpt(text: str, start: int) -> str:
    end = start + _SHOWN_CHARS
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
