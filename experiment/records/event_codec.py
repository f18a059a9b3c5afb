"""Encodes events as the bytes in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack

from holdfast.experiment.folder.layout import JOURNAL
from holdfast.scheduler.codec import Record, decode, encode
from holdfast.scheduler.events import Event
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import Answers
from holdfast.schema import UnreadableRecord
from holdfast.syncer.journal.journal import START, Position, read
from holdfast.syncer.journal.segment import HEADER, segment_name
from holdfast.trial.errors import InvalidTransition

_pack = msgpack.Packer(use_bin_type=True).pack


class OutOfPlace(UnreadableRecord):
    """A record that can be read, but cannot follow the records before it."""


def pack(event: Event, now: float, answers: Answers = ()) -> bytes:
    data: bytes = _pack(encode(event, now, answers))
    return data


def unpack(payload: bytes, end: Position | None = None) -> Record:
    """Decode a record. Raises UnreadableRecord for a record that this version cannot use.

    `end` is the record's end position: with it, the error names the record.
    """
    try:
        return decode(msgpack.unpackb(payload, strict_map_key=False))
    except UnreadableRecord as error:
        fault: Exception = error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # MessagePack's own errors, for nesting that is too deep or keys that no dict can have.
        fault = UnreadableRecord(f"not a MessagePack record of holdfast ({error!r:.200})")
    raise UnreadableRecord(f"{place_of(payload, end)}{fault}") from None


def place_of(payload: bytes, end: Position | None) -> str:
    """The record's location, for an error; "" if not known."""
    if end is None:
        return ""
    start = end.offset - len(payload) - HEADER.size
    return f"{JOURNAL}/{segment_name(end.segment)}, record at offset {start}: "


def read_events(
    journal: Path, start: Position = START, stop: Position | None = None
) -> Iterator[tuple[Record, Position]]:
    """Each record from `start` on, with its end position. Raises UnreadableRecord."""
    for payload, position in read(journal, start, stop):
        yield unpack(payload, position), position


def replay(machine: Machine, record: Record, payload: bytes, end: Position) -> None:
    """Apply one record to the machine.

    Raises OutOfPlace, with the record's location, if it cannot follow the records before it.
    """
    try:
        machine.replay(record.event, now=record.now, answers=record.answers)
    except (UnreadableRecord, InvalidTransition) as error:
        raise OutOfPlace(f"{place_of(payload, end)}{error}") from error.__cause__
