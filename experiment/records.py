"""Events as the bytes that stand in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack

from holdfast.scheduler.codec import Record, decode, encode
from holdfast.scheduler.events import Event
from holdfast.scheduler.policy import Answers
from holdfast.syncer.journal import START, Position, read

_pack = msgpack.Packer(use_bin_type=True).pack


def pack(event: Event, now: float, answers: Answers = ()) -> bytes:
    data: bytes = _pack(encode(event, now, answers))
    return data


def unpack(payload: bytes) -> Record:
    """Raises UnknownRecord for a record of another version."""
    return decode(msgpack.unpackb(payload, strict_map_key=False))


def read_events(
    journal: Path, start: Position = START, stop: Position | None = None
) -> Iterator[tuple[Record, Position]]:
    """Each record from `start` on, and where it ends."""
    for payload, position in read(journal, start, stop):
        yield unpack(payload), position
