"""Records as they are in the journal: names and plain values, checked as little as a page needs.
Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from holdfast.schema import LATEST_S


class RawRecord(NamedTuple):
    name: str
    now: float
    fields: Mapping[str, Any]
    decisions: Sequence[tuple[str, Mapping[str, Any]]]


def raw_record(payload: bytes) -> RawRecord | None:
    """None for what is not a record."""
    try:
        record = msgpack.unpackb(payload, strict_map_key=False)
        name, now, fields = record[:3]
        several = record[3] if len(record) > 3 else ()
        answers = [(kind, parts) for decided in several for kind, parts in decided]
    except (ValueError, TypeError, OverflowError, RecursionError, IndexError, KeyError):
        return None
    is_record = type(name) is str and type(now) in (int, float) and type(fields) is dict
    if not is_record or not 0 <= now <= LATEST_S:
        return None
    known = [(kind, parts) for kind, parts in answers if type(parts) is dict]
    return RawRecord(str(name), float(now), fields, known)


class RawReport(NamedTuple):
    iteration: int
    time_total_s: float
    time_this_iter_s: float
    at: float


def raw_report(payload: bytes) -> RawReport | None:
    """The numbers of a report; None if they are not numbers."""
    record = raw_record(payload)
    if record is None:
        return None
    iteration = record.fields.get("iteration")
    times: list[Any] = [
        record.fields.get(name) for name in ("time_total_s", "time_this_iter_s", "timestamp")
    ]
    if type(iteration) is not int or any(type(time) not in (int, float) for time in times):
        return None
    return RawReport(iteration, *map(float, times))


def time_of(payload: bytes) -> float:
    record = raw_record(payload)
    return 0.0 if record is None else record.now


def text_of(value: Any) -> str:
    return value if type(value) is str else ""


def whole_of(value: Any) -> int:
    return value if type(value) is int else 0
