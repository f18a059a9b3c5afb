"""One segment of the journal as a file: its name, its first bytes, and what it takes the place of.

Format 1: eight bytes of magic and version, then records. Format 2 is written after an fsync that
failed: its first record is a table of what it takes over, then come these records once more, then
new ones. Linux drops the pages whose write failed, so what was in them counts as never written;
but a reader may have read them before, and must not read them twice.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgpack

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.files.regular import open_regular

_MAGIC = b"HFJRNL\x00"
MAGIC = _MAGIC + b"\x01"
_TAKES_OVER = _MAGIC + b"\x02"
NEWEST_FORMAT = 2
HEADER = struct.Struct("<II")
_SEARCHED_BYTES = 1 << 20


class NewerFormat(StorageRefused):
    """A segment that a newer version of holdfast wrote: no version but that may touch it."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two records: `offset` bytes into segment number `segment`."""

    segment: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Records of `segment` from `offset` on, so many bytes."""

    segment: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """Segment `number` has all records of the `pieces` again, in order, from `base` on.

    Everything from the first of them on is to be read there, also by who has read a part of them.
    """

    number: int
    base: int
    pieces: Sequence[RecordSpan]

    @property
    def begins(self) -> Position:
        return Position(self.pieces[0].segment, self.pieces[0].offset)

    def found(self, at: Position) -> Position | None:
        """Where in the new segment a reader is who has come to `at`; None outside the pieces."""
        passed = self.base
        for piece in self.pieces:
            # A reader may stand before the magic of a segment.
            offset = max(at.offset, len(MAGIC))
            if at.segment == piece.segment and 0 <= offset - piece.offset <= piece.length:
                return Position(self.number, passed + offset - piece.offset)
            passed += piece.length
        return None

    def limit(self, number: int) -> int | None:
        """How many bytes of the segment `number` still count; None: all of them."""
        first = self.begins
        if number == first.segment:
            return first.offset
        return len(MAGIC) if first.segment < number < self.number else None


def segment_name(number: int) -> str:
    return f"{number:06d}.log"


def framed(payload: bytes) -> bytes:
    return HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def start_of(number: int, pieces: Sequence[RecordSpan]) -> tuple[bytes, Takeover]:
    """The first bytes of a segment that takes over these pieces."""
    rows = [[piece.segment, piece.offset, piece.length] for piece in pieces]
    data = _TAKES_OVER + framed(msgpack.packb({"takes_over": rows}))
    return data, Takeover(number, len(data), tuple(pieces))


def check_magic(data: bytes, path: Path) -> bool:
    """Whether a segment may begin so. Raises NewerFormat where a newer version wrote it.

    Where an event follows, as in format 1, only the byte of the format is damaged: each later
    format begins with a record of another kind.
    """
    if data[: len(_MAGIC)] != _MAGIC or len(data) < len(MAGIC):
        return False
    version = data[len(_MAGIC)]
    if version > NEWEST_FORMAT:
        if _begins_with_event(path):
            return False
        raise NewerFormat(
            "read",
            str(path),
            f"a newer holdfast wrote it (journal format {version}; this one reads formats 1 to "
            f"{NEWEST_FORMAT})",
            "Nothing was changed. Use the version that wrote it",
        )
    return version > 0


def _begins_with_event(path: Path) -> bool:
    with open_regular(path) as file:
        file.seek(len(MAGIC))
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return False
        length, crc = HEADER.unpack(head)
        payload = file.read(length) if length <= os.fstat(file.fileno()).st_size else b""
    if not length or len(payload) < length or zlib.crc32(payload) != crc:
        return False
    try:
        record = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return False
    kinds = [type(part) for part in record[:3]] if type(record) is list else []
    return kinds in ([str, float, dict], [str, int, dict])


def first_record(data: bytes) -> int:
    """Where the first record of an event stands in a segment that begins with `data`.

    0 where the segment is one that takes over others, and its table is torn.
    """
    if data[: len(MAGIC)] == MAGIC:
        return len(MAGIC)
    start = len(MAGIC) + HEADER.size
    if len(data) < start:
        return 0
    length, crc = HEADER.unpack_from(data, len(MAGIC))
    table = data[start : start + length]
    return start + length if len(table) == length and zlib.crc32(table) == crc else 0


def takeover_of(directory: Path, number: int) -> Takeover | None:
    """What the segment takes the place of; None for most. Raises NewerFormat, OSError."""
    path = directory / segment_name(number)
    with open_regular(path) as file:
        magic = file.read(len(MAGIC))
        if not check_magic(magic, path) or magic != _TAKES_OVER:
            return None
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return None
        length, crc = HEADER.unpack(head)
        if length > os.fstat(file.fileno()).st_size:
            return None
        table = file.read(length)
    if len(table) < length or zlib.crc32(table) != crc:
        return None
    pieces = _pieces(table, number)
    return Takeover(number, len(MAGIC) + HEADER.size + length, pieces) if pieces else None


def _pieces(table: bytes, number: int) -> tuple[RecordSpan, ...]:
    """None of them where the table is nonsense: then the segment takes nothing's place."""
    try:
        rows = msgpack.unpackb(table)["takes_over"]
        pieces = tuple(RecordSpan(*row) for row in rows)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException):
        return ()
    values = [value for piece in pieces for value in (piece.segment, piece.offset, piece.length)]
    if any(type(value) is not int or value < 0 for value in values):
        return ()
    return pieces if all(piece.segment < number for piece in pieces) else ()


def takeovers(directory: Path, numbers: Iterable[int]) -> Iterator[Takeover]:
    """Those of these segments that take the place of others, in order. Raises NewerFormat."""
    for number in numbers:
        found = takeover_of(directory, number)
        if found is not None:
            yield found


def last_word(number: int, known: Sequence[Takeover]) -> Takeover | None:
    """Where to go on reading after what still counts of the segment; None for the next one."""
    over = [one for one in known if one.limit(number) is not None]
    return over[-1] if over else None


def is_torn(path: Path, offset: int) -> bool:
    """Whether a crash in the middle of a write leaves a segment so from `offset` on.

    Then less than a record, or nothing but zeros, stands there, and no whole record behind it.
    """
    with open_regular(path) as file:
        file.seek(offset)
        data = file.read(_SEARCHED_BYTES)
        if not offset and data[: len(MAGIC)] == MAGIC:
            offset, data = len(MAGIC), data[len(MAGIC) :]
    if not any(data) or (not offset and MAGIC.startswith(data)):
        return True
    if len(data) < HEADER.size:
        return bool(offset)
    length, _ = HEADER.unpack_from(data)
    return (
        bool(offset)
        and length > path.stat().st_size - offset - HEADER.size
        and not _has_record(data)
    )


def _has_record(data: bytes) -> bool:
    return bool(next_record(data[:_SEARCHED_BYTES], 1))


def next_record(data: bytes, since: int) -> int:
    """Where the first whole record begins from offset `since` on; 0 for nowhere."""
    for at in range(since, len(data) - HEADER.size):
        length, crc = HEADER.unpack_from(data, at)
        start = at + HEADER.size
        if 0 < length <= len(data) - start and zlib.crc32(data[start : start + length]) == crc:
            return at
    return 0
