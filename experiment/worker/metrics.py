"""Converts what a user reports to plain data that the journal can store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from numbers import Real
from typing import Any

from holdfast.text.errors import excerpt
from holdfast.trial.errors import InvalidMetrics
from holdfast.trial.values import in_order

_PLAIN = frozenset({int, float, str, bool, type(None)})
_SIMPLE = frozenset({float, bool, type(None)})
_MAY_HOLD_MOMENTS = frozenset({"ndarray", "datetime64", "timedelta64"})
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
# Larger values are data rather than metrics, and would fill the journal and every result.json.
DEEPEST = 100  # nesting.DEEPEST
LONGEST_LIST, LONGEST_TEXT = 1_000_000, 1 << 24


def sendable(text: str) -> str:
    """`text` with `?` for characters that UTF-8 cannot encode, such as undecoded bytes of a file
    name."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def plain_metrics(metrics: object) -> dict[str, Any]:
    """A copy with NumPy and torch scalars as numbers, and their arrays as lists.

    Keys become text, dates and times ISO text, durations seconds, paths text, decimals floats,
    enum members their values, and sets sorted lists. Raises InvalidMetrics, naming the key, for
    anything else that is not plain, and for keys that have the same text.
    """
    if type(metrics) is dict:
        for key, value in metrics.items():
            if type(key) is not str or not key.isascii():
                break
            kind = type(value)
            if kind not in _SIMPLE and not (kind is int and _SMALLEST <= value <= _LARGEST):
                break
        else:
            # Nearly every report has nothing to convert: it is sent before the user changes it.
            return metrics
    if not isinstance(metrics, Mapping):
        is_number = isinstance(metrics, Real) and not isinstance(metrics, bool)
        instead = ". Write report({'loss': value})" if is_number else ""
        raise InvalidMetrics(
            f"report() takes a dict of metrics, not {type(metrics).__name__}: {excerpt(metrics)}"
            f"{instead}"
        )
    try:
        plain = _plain_mapping(metrics, "")
    except RecursionError:
        raise _nested(metrics) from None
    if _is_deep(plain, DEEPEST):
        raise _nested(metrics)
    return plain


def _plain_mapping(given: Mapping[Any, Any], name: str) -> dict[str, Any]:
    plain = {}
    for key, value in given.items():
        text = _key(key, name)
        plain[text] = _plain(value, f"{name}/{text}" if name else text)
    if len(plain) != len(given):
        _refuse_alike(given, name)
    return plain


def _nested(metrics: object) -> InvalidMetrics:
    from holdfast.trial.values import nesting_fault  # imported only here: workers rarely need it

    fault = nesting_fault(metrics) or "it is nested too deep"
    return InvalidMetrics(f"a reported metric cannot be stored: {fault}")


def _is_deep(value: Any, most: int) -> bool:
    """True if dicts and lists are nested more than `most` deep: no reader accepts that row."""
    inside = value.values() if type(value) is dict else value if type(value) is list else None
    if inside is None:
        return False
    return not most or any(_is_deep(part, most - 1) for part in inside)


def _key(key: object, above: str) -> str:
    if isinstance(key, str):
        _check_text(key, key)
        return key
    inside = f" inside {above!r}" if above else ""
    try:
        text = _plain(key, "")
    except InvalidMetrics:  # reported below, with the key: the user may convert it to text
        text = key
    if isinstance(text, (str, int, float)) or text is None:
        return str(text)
    raise InvalidMetrics(
        f"the key {excerpt(key)}{inside} of the reported metrics is a {type(key).__name__}: "
        f"use a string"
    )


def _refuse_alike(metrics: Mapping[Any, Any], above: str) -> None:
    known: dict[str, object] = {}
    for key in metrics:
        text = _key(key, above)
        if text in known:
            inside = f" inside {above!r}" if above else ""
            raise InvalidMetrics(
                f"the keys {excerpt(known[text])} and {excerpt(key)}{inside} of the reported "
                f"metrics are both {text!r} as text, and one of their values would be lost"
            )
        known[text] = key


def _plain(value: Any, name: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        if kind is int and not _SMALLEST <= value <= _LARGEST:
            raise _no_form(value, name, "an integer beyond 64 bits")
        if kind is str:
            _check_text(value, name)
        return value
    if isinstance(value, Mapping):
        return _plain_mapping(value, name)
    if isinstance(value, (list, tuple)):
        if len(value) > LONGEST_LIST:
            raise _no_form(value, name, f"a list of {len(value):,} values")
        return [_plain(part, f"{name}/{at}") for at, part in enumerate(value)]
    if isinstance(value, (int, float, str)):
        return _plain(_base(value), name)
    return _from_array(value, name)


def _check_text(text: str, name: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise _no_form(text[:60], name, f"a text of {len(text):,} characters")
    if sendable(text) != text:
        raise _no_form(text, name, "text that is no valid Unicode")


def _base(value: int | float | str) -> int | float | str:
    """The plain value of an enum member or of a subclass of a number, such as numpy.float64."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


def _from_array(value: Any, name: str) -> Any:
    """Convert a value of NumPy, torch, JAX or TensorFlow: all have `tolist` or `item`."""
    if type(value).__name__ in _MAY_HOLD_MOMENTS and type(value).__module__ == "numpy":
        value = _in_microseconds(value)
    size = getattr(value, "size", 0)
    if isinstance(size, int) and size > LONGEST_LIST:
        raise _no_form(value, name, f"an array of {size:,} values")
    for method in ("tolist", "item", "numpy"):
        convert = getattr(value, method, None)
        if callable(convert):
            try:
                converted = convert()
            except Exception as error:  # raised with the key
                raise _no_form(value, name, f"a {type(value).__name__}") from error
            if type(converted) is not type(value):
                return _plain(converted, name)
    return _from_object(value, name)


def _in_microseconds(value: Any) -> Any:
    """Convert dates and durations of NumPy to microseconds: finer ones do not become Python's.

    Everything else is left as it is.
    """
    kind = value.dtype.kind
    return value.astype(f"{kind}8[us]") if kind in ("M", "m") else value


def _from_object(value: Any, name: str) -> Any:
    match value:
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | Real():
            return _to_float(value, name)
        case Enum():
            return _plain(value.value, name)
        case os.PathLike():
            return _plain(os.fspath(value), name)
        case set() | frozenset():
            return _plain(in_order(value), name)
        case _:
            kind = type(value)
            raise _no_form(value, name, f"a {kind.__module__}.{kind.__qualname__}")


def _to_float(value: Decimal | Real, name: str) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError) as error:  # a signalling NaN, a fraction beyond all floats
        raise _no_form(value, name, f"a {type(value).__name__}") from error


def _no_form(value: object, name: str, kind: str) -> InvalidMetrics:
    return InvalidMetrics(
        f"the reported metric {name!r} is {kind}, which cannot be stored: {excerpt(value)}. "
        f"Report numbers, strings, booleans, None, and lists or dicts of them{_instead(value)}"
    )


def _instead(value: object) -> str:
    """Advice for data that is not a metric. A row holds no pickles: reading one runs code."""
    if type(value).__name__ == "DataFrame":
        return ", such as its to_dict('list')"
    return "; write other data to a file in get_context().get_trial_dir(), or in a checkpoint"
