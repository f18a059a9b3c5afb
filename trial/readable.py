"""Converts values for people to read: in params.json, result.json, tables and placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from holdfast.trial.values import (
    READ_BITS,
    Opaque,
    Ref,
    in_order,
    is_plain,
    summarize,
    unwrap_scalar,
    whole_text,
)

# A larger value that is not plain is data: only its kind and size are shown.
MOST: Final = 1_000


def readable(value: Any) -> Any:
    """`value` as JSON can hold it: sets as sorted lists, keys and bytes as text.

    A value that only the user's code can read is shown as its summary.
    """
    kind = type(value)
    if kind is float or kind is bool or value is None:
        return value
    if kind is str:
        return value if value.isascii() else value.encode(errors="replace").decode()
    if kind is int:
        return value if value.bit_length() <= READ_BITS else whole_text(value)
    if kind is Ref or kind is Opaque:
        return value.summary if value.shown is None else value.shown
    if isinstance(value, Mapping):
        return _with_text_keys(value)
    if isinstance(value, (list, tuple)):
        return list(map(readable, value))
    if isinstance(value, (set, frozenset)):
        return in_order(map(readable, value))
    return _readable_object(value)


def finite(value: Any) -> Any:
    """Plain values with None for NaN and the infinities, which other JSON readers refuse."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def excerpt(value: Any) -> Any:
    """The `shown` of a value that is not plain; None if its summary says the same.

    A container of more than 1,000 values, and a larger array, is shown by its size.
    """
    try:
        shown = _sized(value) if _count(value, MOST) > MOST else readable(value)
    except Exception:  # the user's class raised, or it contains itself: show its summary
        return None
    return None if shown == summarize(value) else shown


def key_text(key: object) -> str:
    """The key of a dict as text: `1`, `0.5`, `None`, `(1, 'a')`."""
    return str(key if isinstance(key, (tuple, frozenset)) else readable(key))


def _with_text_keys(values: Mapping[Any, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, value in values.items():
        text = key if type(key) is str and key.isascii() else key_text(key)
        if text in shown:  # both 1 and "1" are keys
            text = f"{text} ({type(key).__name__})"
        shown[text] = readable(value)
    return shown


def _count(value: Any, most: int) -> int:
    """The number of values that would be shown; stops counting above `most`."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return value.size if _is_small_array(value) else 1
    count = 0
    for item in value:
        count += _count(item, most - count)
        if count > most:
            break
    return count


def _sized(value: Any) -> str:
    return f"{type(value).__name__} of {len(value):,}"


def _readable_object(value: Any) -> Any:
    value = unwrap_scalar(value)
    if isinstance(value, Enum):
        return readable(value.value) if is_plain(value.value) else value.name
    if isinstance(value, str):
        return readable(str.__str__(value))
    if isinstance(value, int):
        return readable(int(value))
    if isinstance(value, (float, Decimal)):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode(errors="backslashreplace")
    if isinstance(value, complex):
        return str(value)
    if _is_small_array(value):
        return _readable_numbers(value)
    if hasattr(type(value), "shape") and hasattr(type(value), "dtype"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}, {value.dtype}"
    return summarize(value) if isinstance(value, type) else _readable_by_method(value)


def _is_small_array(value: Any) -> bool:
    """Whether it is a small NumPy array: other libraries may hold their numbers outside main
    memory."""
    package = type(value).__module__.partition(".")[0]
    return package == "numpy" and hasattr(type(value), "tolist") and value.size <= MOST


def _readable_numbers(array: Any) -> Any:
    if array.dtype.kind in "Mm":  # dates and times: their raw numbers mean nothing to people
        return array.astype(str).tolist() if array.shape else str(array)
    return readable(array.tolist())


def _readable_by_method(value: Any) -> Any:
    """Dates and paths as text, durations in seconds, anything else as its summary."""
    for method in ("isoformat", "total_seconds", "__fspath__"):
        if callable(getattr(type(value), method, None)):
            return readable(getattr(value, method)())
    return summarize(value)
