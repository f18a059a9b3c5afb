"""What a user reports, as plain data that the journal can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.trial.errors import InvalidMetrics

_PLAIN = frozenset({int, float, str, bool, type(None)})
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1


def plain_metrics(metrics: object) -> dict[str, Any]:
    """A copy with NumPy and torch scalars as numbers, and their arrays as lists.

    Raises InvalidMetrics, naming the key, for anything else that has no plain form.
    """
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
        return value
    if isinstance(value, Mapping):
        return {_key(key, name): _plain(part, f"{name}/{key}") for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, f"{name}/{at}") for at, part in enumerate(value)]
    if isinstance(value, (int, float, str)):
        return _plain(_base(value), name)
    return _from_array(value, name)


def _base(value: int | float | str) -> int | float | str:
    """An enum member, or a subclass of a number such as numpy.float64, as what it is."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


def _from_array(value: Any, name: str) -> Any:
    """NumPy, torch, JAX and TensorFlow values all know `tolist` or `item`."""
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
        f"the reported metric {name!r} is {kind}, which cannot be stored: {value!r:.80}. Report "
        f"numbers, strings, booleans, None, and lists or dicts of them"
    )
