"""Reports as the journal has them: which ones a page may skip, and their numbers when it asks.

`event_codec.pack` writes the fields of a report in one order. So what comes before the metrics and
what comes after them is found by its place, without decoding. A report that looks different, such
as one with a checkpoint, is decoded as a whole. Pure: no I/O.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Any, Final, NamedTuple

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
_TIMES: Final = Struct(">11xd18xd14xd")
_AFTER_BYTES: Final = _TIMES.size + len(b"\xaacheckpoint\xc0\xa8has_room\xc2")
_ITERATION: Final = b"\xa9iteration"
# An id, the attempt and the name of the iteration are shorter.
_HEAD_BYTES: Final = 64
_METRICS: Final = b"\xa7metrics"
# A report whose metrics may say that its trial is done.
_DONE: Final = b"\xa4done\xc3"
_WHOLE_BYTES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


class Numbers(NamedTuple):
    """What a report says, without the user's metrics that are not numbers."""

    iteration: int
    time_total_s: float
    timestamp: float
    metrics: dict[str, Any]


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


def find_iteration(payload: bytes) -> int:
    """The offset of the iteration in a report, 0 if it is not there."""
    found = payload.find(_ITERATION, ID_AT, ID_AT + _HEAD_BYTES)
    return 0 if found < 0 else found + len(_ITERATION)


def iteration_at(payload: bytes, at: int) -> int:
    """The whole number at this offset. Raises ValueError, IndexError if there is none."""
    return _whole(payload, at)[0]


def numbers_of(payload: bytes, at: int) -> Numbers | None:
    """The numbers of a report of which `is_only_progress`, and whose iteration is at the offset
    `at`; None if it has another form."""
    try:
        iteration, at = _whole(payload, at)
        end, begin = len(payload) - _AFTER_BYTES, at + len(_METRICS)
        if payload[at:begin] != _METRICS:
            return None
        metrics = msgpack.unpackb(payload[begin:end], strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError, IndexError):
        return None
    if type(metrics) is not dict:
        return None
    timestamp, _, time_total_s = _TIMES.unpack_from(payload, end)
    return Numbers(iteration, time_total_s, timestamp, metrics)


def _whole(payload: bytes, at: int) -> tuple[int, int]:
    """A number that is not negative, and where it ends."""
    first, begin = payload[at], at + 1
    if first < 0x80:
        return first, begin
    size = _WHOLE_BYTES.get(first, 0)
    if not size or begin + size > len(payload):
        raise ValueError("not a whole number")
    return int.from_bytes(payload[begin : begin + size], "big"), begin + size
