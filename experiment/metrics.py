"""What a user reports, as plain data that the journal can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.trial.errors import InvalidMetrics

_PLAIN = frozenset({int, float, str, bool, type(None)})
_SIMPLE = frozenset({float, bool, type(None)})
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
# Beyond this it is data rather than a metric, and would fill the journal and every result.json.
_LONGEST_LIST, _LONGEST_TEXT = 1_000_000, 1 << 24


def sendable(text: str) -> str:
    """`text` with `?` for what no UTF-8 holds, such as the rest of a file name in another code."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def plain_metrics(metrics: object) -> dict[str, Any]:
    """A copy with NumPy and torch scalars as numbers, and their arrays as lists.

    Raises InvalidMetrics, naming the key, for anything else that has no plain form.
    """
    if type(metrics) is dict and all(
        type(key) is str
        and (type(value) in _SIMPLE or (type(value) is int and _SMALLEST <= value <= _LARGEST))
        for key, value in metrics.items()
    ):
        # Nearly every report: nothing to convert, and sent before the user can change it.
        return metrics
    if not isinstance(metrics, Mapping):
        raise InvalidMetrics(
            f"report() takes a dict of metrics, not {type(metrics).__name__}: {metrics!r:.80}"
        )
    return {_key(key, ""): _plain(value, str(key)) for key, value in metrics.items()}


def _key(key: object, above: str) -> str:
    if isinstance(key, str):
        return key
    inside = f" inside {above!r}" if above else ""
    raise InvalidMetrics(
        f"the key {key!r}{inside} of the reported metrics is a {type(key).__name__}: use a string"
    )


def _plain(value: Any, name: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        if kind is int and not _SMALLEST <= value <= _LARGEST:
            raise _no_form(value, name, "an integer beyond 64 bits")
        if kind is str:
            _check_text(value, name)
        return value
    if isinstance(value, Mapping):
        return {_key(key, name): _plain(part, f"{name}/{key}") for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) > _LONGEST_LIST:
            raise _no_form(value, name, f"a list of {len(value):,} values")
        return [_plain(part, f"{name}/{at}") for at, part in enumerate(value)]
    if isinstance(value, (int, float, str)):
        return _plain(_base(value), name)
    return _from_array(value, name)


def _check_text(text: str, name: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise _no_form(text[:60], name, f"a text of {len(text):,} characters")
    if sendable(text) != text:
        raise _no_form(text, name, "text that is no valid Unicode")


def _base(value: int | float | str) -> int | float | str:
    """An enum member, or a subclass of a number such as numpy.float64, as what it is."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


def _from_array(value: Any, name: str) -> Any:
    """NumPy, torch, JAX and TensorFlow values all know `tolist` or `item`."""
    size = getattr(value, "size", 0)
    if isinstance(size, int) and size > _LONGEST_LIST:
        raise _no_form(value, name, f"an array of {size:,} values")
    for method in ("tolist", "item", "numpy"):
        convert = getattr(value, method, None)
        if callable(convert):
            try:
                converted = convert()
            except Exception as error:  # told to the user with the key
                raise _no_form(value, name, f"a {type(value).__name__}") from error
            if type(converted) is not type(value):
                return _plain(converted, name)
    raise _no_form(value, name, f"a {type(value).__module__}.{type(value).__qualname__}")


def _no_form(value: object, name: str, kind: str) -> InvalidMetrics:
    return InvalidMetrics(
        f"the reported metric {name!r} is {kind}, which cannot be stored: {_excerpt(value)}. "
        f"Report numbers, strings, booleans, None, and lists or dicts of them"
    )


def _excerpt(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:  # a broken __repr__ must not hide what is wrong
        return f"<{type(value).__qualname__}>"
