"""A search space in words: kept with an experiment, and compared when a restore brings another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.trial.domains import Categorical, Float, Function, Integer, Normal
from holdfast.trial.space import grid_values, is_grid, is_searched
from holdfast.trial.values import Path, is_plain, key_name, unwrap_scalar

_SHOWN_CHARS: Final = 120


def describe(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `space` is, as JSON and msgpack hold it: path, text and whether it is varied, per key.

    Of values that are not plain it tells only the type, and of functions nothing, so that a
    restore may replace them.
    """
    return [
        {"path": list(path), "text": text_of(value), "varied": is_searched(value)}
        for path, value in _parts(space, ())
    ]


def differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    """What changed between two descriptions, a line for each key; empty where nothing did.

    The order of the varied keys counts too: it decides which random number goes to which.
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
    """A value or a domain as users write it; of what is not plain only the type."""
    value = unwrap_scalar(value)
    if isinstance(value, Categorical):
        return f"choice([{_joined(value.categories)}])"
    if is_grid(value):
        return f"grid_search([{_joined(grid_values(value) or ())}])"
    if isinstance(value, (Float, Integer, Normal, Function)):
        return str(value)
    if is_plain(value):
        return repr(value)
    if type(value) is list or type(value) is tuple:
        return f"[{_joined(value)}]" if type(value) is list else f"({_joined(value)})"
    if _has_text(value):
        return f"{{{', '.join(f'{key!r}: {text_of(item)}' for key, item in value.items())}}}"
    return f"<{type(value).__name__}>"


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(map(text_of, values))


def _parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    value = unwrap_scalar(value)
    searched = is_searched(value)
    if isinstance(value, dict) and value and not is_grid(value) and (searched or _has_text(value)):
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif isinstance(value, (list, tuple)) and (searched or not is_plain(value)):
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
    """Both texts, cut around their first difference where they are long."""
    if max(len(was), len(now)) <= _SHOWN_CHARS:
        return was, now
    pairs = enumerate(zip(was, now, strict=False))
    shared = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    start = max(0, shared - _SHOWN_CHARS // 2)
    return _excerpt(was, start), _excerpt(now, start)


def _excerpt(text: str, start: int) -> str:
    end = start + _SHOWN_CHARS
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
