"""Events as the bytes that stand in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack

from holdfast.scheduler.codec import decode, encode
from holdfast.scheduler.events import Event
from holdfast.syncer.journal import START, Position, read

_pack = msgpack.Packer(use_bin_type=True).pack


def pack(event: Event, now: float) -> bytes:
    data: bytes = _pack(encode(event, now))
    return data


def unpack(payload: bytes) -> tuple[Event, float]:
    """Raises UnknownRecord for a record of another version."""
    return decode(msgpack.unpackb(payload, strict_map_key=False))


def read_events(
    journal: Path, start: Position = START, stop: Position | None = None
) -> Iterator[tuple[Event, float, Position]]:
    """Event, time and end position of each record from `start` on."""
    for payload, position in read(journal, start, stop):
        event, now = unpack(payload)
        yield event, now, position
