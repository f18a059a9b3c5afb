"""Reports as the journal has them: which ones a page may skip, and their numbers when it asks.

`event_codec.pack` writes the fields of a report in one order. So what comes before the metrics and
what comes after them is found by its place, without decoding. A report that looks different, such
as one with a checkpoint, is decoded as a whole. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgpack

# A list of three, the name, the time as 8 bytes, and a table of fewer than 16 fields. The first of
# them is the trial's id, a text of less than 32 bytes.
PLAIN: Final = 0x93
NAME: Final = b"\xa8Reported"
REPORT: Final = bytes([PLAIN]) + NAME
ID_AT: Final = len(REPORT) + len(b"\xcb") + 8 + 1 + len(b"\xa8trial_id") + 1
SHORT_TEXT: Final = 0xA0
_AFTER: Final = re.compile(
    rb"\xa9timestamp\xcb.{8}\xb0time_this_iter_s\xcb.{8}\xactime_total_s\xcb.{8}"
    rb"\xaacheckpoint\xc0\xa8has_room[\xc2\xc3]",
    re.DOTALL,
)
_AFTER_BYTES: Final = 3 * 8 + len(
    b"\xa9timestamp\xcb\xb0time_this_iter_s\xcb\xactime_total_s\xcb\xaacheckpoint\xc0\xa8has_room\xc2"
)
_ITERATION: Final = b"\xa9iteration"
# A report whose metrics may say that its trial is done.
_DONE: Final = b"\xa4done\xc3"
_NUMBERS: Final = (int, float)
_ONE_BYTE: Final = 0x80
_WHOLE_BYTES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


def id_of(payload: bytes) -> bytes:
    """The id of a report's trial, if it is a short text: any bytes if it is not."""
    return payload[ID_AT : ID_AT + payload[ID_AT - 1] - SHORT_TEXT]


def beginning(attempt: int) -> bytes:
    """What follows the id in a report of this attempt, up to the iteration."""
    packed: bytes = msgpack.packb(attempt)
    return b"\xa7attempt" + packed + _ITERATION


def is_only_progress(payload: bytes) -> bool:
    """Whether a report has neither a checkpoint nor `done`, and its times are numbers."""
    end = len(payload) - _AFTER_BYTES
    return end > ID_AT and _AFTER.match(payload, end) is not None and _DONE not in payload


def iteration_at(payload: bytes, at: int) -> int:
    """The whole number, not negative, at this offset. Raises ValueError, IndexError if there is
    none."""
    first, begin = payload[at], at + 1
    if first < _ONE_BYTE:
        return first
    size = _WHOLE_BYTES.get(first, 0)
    if not size or begin + size > len(payload):
        raise ValueError("not a whole number")
    return int.from_bytes(payload[begin : begin + size], "big")


def fields_of(payload: bytes) -> dict[str, Any] | None:
    """The fields of a report, decoded; None if its numbers are not numbers."""
    try:
        fields = msgpack.unpackb(payload, strict_map_key=False)[2]
        return fields if has_numbers(fields) else None
    except (ValueError, TypeError, OverflowError, RecursionError, KeyError, IndexError):
        return None


def has_numbers(fields: Mapping[str, Any]) -> bool:
    """Raises KeyError, TypeError for what has not the fields of a report."""
    return (
        type(fields["metrics"]) is dict
        and type(fields["trial_id"]) is str
        and type(fields["iteration"]) is int
        and type(fields["time_total_s"]) in _NUMBERS
        and type(fields["time_this_iter_s"]) in _NUMBERS
        and type(fields["timestamp"]) in _NUMBERS
    )
