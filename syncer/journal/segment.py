"""The format of a segment, which is one file of the journal, and how its records are read.

Format 1 has eight bytes of magic and version, then records. Format 2 is written after a failed
fsync, because Linux may have dropped the pages that it could not write. Its first record is a
table of the records that were not forced to the disk. Then come copies of these records, and then
new ones. With the table, a reader that has already read the originals does not read the copies.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgpack

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.files.tree import open_regular
from holdfast.syncer.journal.stretches import SegmentFile, segment_size

_MAGIC = b"HFJRNL\x00"
MAGIC = _MAGIC + b"\x01"
_TAKES_OVER = _MAGIC + b"\x02"
NEWEST_FORMAT = 2
HEADER = struct.Struct("<II")
_SEARCHED_BYTES = 1 << 20


class NewerFormat(StorageRefused):
    """A newer version of holdfast wrote the segment, so this version must not change it."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position between two records, at `offset` in the segment number `segment`."""

    segment: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """`length` bytes of records of `segment`, from `offset` on."""

    segment: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """The table of segment `number`, which has copies of the records in `pieces`.

    The copies are in the order of the pieces and begin at the offset `base`. All readers skip the
    originals and read the copies; `found` says where a reader of the originals continues.
    """

    number: int
    base: int
    pieces: Sequence[RecordSpan]

    @property
    def begins(self) -> Position:
        return Position(self.pieces[0].segment, self.pieces[0].offset)

    def found(self, at: Position) -> Position | None:
        """The position among the copies that corresponds to `at`; None if that is outside the
        pieces."""
        passed = self.base
        for piece in self.pieces:
            # A reader that begins a segment may be at offset 0, before the magic.
            offset = max(at.offset, len(MAGIC))
            if at.segment == piece.segment and 0 <= offset - piece.offset <= piece.length:
                return Position(self.number, passed + offset - piece.offset)
            passed += piece.length
        return None

    def limit(self, number: int) -> int | None:
        """The number of bytes of the segment `number` that are still read; None for all."""
        first = self.begins
        if number == first.segment:
            return first.offset
        return len(MAGIC) if first.segment < number < self.number else None


def segment_name(number: int) -> str:
    return f"{number:06d}.log"


def framed(payload: bytes) -> bytes:
    return HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def start_of(number: int, pieces: Sequence[RecordSpan]) -> tuple[bytes, Takeover]:
    """The first bytes of a segment with copies of these pieces: the magic and the table."""
    rows = [[piece.segment, piece.offset, piece.length] for piece in pieces]
    data = _TAKES_OVER + framed(msgpack.packb({"takes_over": rows}))
    return data, Takeover(number, len(data), tuple(pieces))


def check_magic(data: bytes, path: Path) -> bool:
    """True if the magic is valid. Raises NewerFormat if a newer version wrote the segment.

    Only format 1 begins with the record of an event. So if one follows an unknown format byte,
    that byte is damaged.
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
            f"a newer version of holdfast wrote it (journal format {version}; this one reads "
            f"formats 1 to {NEWEST_FORMAT})",
            "Nothing was changed. Use the version that wrote it",
        )
    return version > 0


def read_record(read: Callable[[int], bytes], largest: int) -> bytes | None:
    """The payload of the next record of a file; None if it is not valid, or larger than
    `largest`."""
    head = read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    length, crc = HEADER.unpack(head)
    payload = read(length) if length <= largest else b""
    return payload if len(payload) == length and zlib.crc32(payload) == crc else None


def _begins_with_event(path: Path) -> bool:
    with open_regular(path) as file:
        file.seek(len(MAGIC))
        payload = read_record(file.read, os.fstat(file.fileno()).st_size)
    if not payload:
        return False
    try:
        record = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return False
    kinds = [type(part) for part in record[:3]] if type(record) is list else []
    return kinds in ([str, float, dict], [str, int, dict])


def takeover_of(directory: Path, number: int) -> Takeover | None:
    """The segment's table; None if it has none, as most. Raises NewerFormat, OSError."""
    path = directory / segment_name(number)
    with open_regular(path) as file:
        magic = file.read(len(MAGIC))
        if not check_magic(magic, path) or magic != _TAKES_OVER:
            return None
        table = read_record(file.read, os.fstat(file.fileno()).st_size)
    if table is None:
        return None
    pieces = _pieces(table, number)
    return Takeover(number, len(MAGIC) + HEADER.size + len(table), pieces) if pieces else None


def _pieces(table: bytes, number: int) -> tuple[RecordSpan, ...]:
    """The pieces in a table; empty if it is not valid, and then the segment counts as new."""
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
    """The tables of these segments, in order. Raises NewerFormat."""
    for number in numbers:
        found = takeover_of(directory, number)
        if found is not None:
            yield found


def newest_takeover(number: int, known: Sequence[Takeover]) -> Takeover | None:
    """The newest table whose copies replace the end of the segment `number`, or all of it.

    Readers read the segment up to the table's `limit` and continue with the copies. None: they
    read the whole segment and continue with the next one.
    """
    over = [one for one in known if one.limit(number) is not None]
    return over[-1] if over else None


def is_torn(path: Path, offset: int) -> bool:
    """True if a crash during a write explains the bytes from `offset` on.

    They are then an incomplete record, or zeros, without a complete record after that.
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
    """The offset of the first complete record from `since` on; 0 if there is none."""
    for at in range(since, len(data) - HEADER.size):
        length, crc = HEADER.unpack_from(data, at)
        start = at + HEADER.size
        if 0 < length <= len(data) - start and zlib.crc32(data[start : start + length]) == crc:
            return at
    return 0


LARGEST_RECORD = 1 << 30
START = Position()
_BLOCK = 1 << 20
_SEGMENT = re.compile(r"[0-9]{6,12}\.log")


def segments(directory: Path) -> list[int]:
    """The numbers of the segments that exist, in ascending order."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = {int(name[:-4]) for name in names if _SEGMENT.fullmatch(name)}
    return sorted(number for number in numbers if segment_name(number) in names)


def read_segment(
    directory: Path,
    number: int,
    offset: int = 0,
    size: int | None = None,
    *,
    ends_only: bool = False,
) -> Iterator[tuple[bytes, int]]:
    """Payload and end offset of each record of a segment, up to the first incomplete one.

    Reads at most `size` bytes, one block at a time. With `ends_only`, only the last complete
    record of each block, without its payload: a third of the time.
    """
    with SegmentFile(directory, number) as file:
        if offset < len(MAGIC):
            offset = begins_at(file, directory / segment_name(number))
            if not offset:
                return
        end = segment_size(directory, number)
        file.seek(offset)
        end = end if size is None else min(size, end)
        yield from _ends(file, offset, end) if ends_only else _records(file, offset, end)


def begins_at(file: SegmentFile, path: Path) -> int:
    """The offset of the first event's record; 0 if the header is damaged."""
    start = file.read(len(MAGIC))
    if not check_magic(start, path):
        return 0
    if start == MAGIC:
        return len(MAGIC)
    table = read_record(file.read, LARGEST_RECORD)
    return 0 if table is None else len(MAGIC) + HEADER.size + len(table)


def _records(file: SegmentFile, offset: int, end: int) -> Iterator[tuple[bytes, int]]:
    """The records between two offsets, up to the first that is not valid."""
    crc32, unpack, size = zlib.crc32, HEADER.unpack_from, HEADER.size
    data, at = b"", 0
    while end - offset > size:
        length = 0
        while at + size <= len(data):
            length, crc = unpack(data, at)
            payload = data[at + size : at + size + length]
            if len(payload) < length:
                break
            # Zeros, which a power cut leaves on some file systems, have a valid CRC: check length.
            if not length or crc32(payload) != crc:
                return
            at += size + length
            offset += size + length
            length = 0  # that of the next record, whose header may be in the next block
            yield payload, offset
        if length > end - offset - size:
            return
        data, at = data[at:], 0
        more = file.read(min(max(_BLOCK, size + length), end - offset - len(data)))
        if not more:
            return
        data += more


def _ends(file: SegmentFile, offset: int, end: int) -> Iterator[tuple[bytes, int]]:
    """The ends of the last records of blocks, as `_records` would find them."""
    crc32, unpack, size = zlib.crc32, HEADER.unpack_from, HEADER.size
    rest, want = b"", _BLOCK
    while more := file.read(min(want, end - offset - len(rest))):
        data = rest + more
        whole, at, known, need = memoryview(data), 0, len(data), 0
        while at + size <= known:
            length, crc = unpack(data, at)
            need = at + size + length
            if need > known and length:
                break
            if not length or crc32(whole[at + size : need]) != crc:
                end = offset + at  # there is nothing after it
                break
            at = need
        offset += at
        if at:
            yield b"", offset
        if max(need - at, size) > end - offset:
            return
        rest, want = data[at:], max(_BLOCK, need - known)


def read(
    directory: Path,
    start: Position = START,
    stop: Position | None = None,
    *,
    ends_only: bool = False,
) -> Iterator[tuple[bytes, Position]]:
    """Payload and end position of each record from `start` to `stop`.

    Reading ends at the first incomplete record, even if later segments exist, because records
    after a gap may depend on missing ones. `ends_only`: see `read_segment`.
    """
    last = None if stop is None else stop.segment
    known = [n for n in segments(directory) if n >= start.segment and (last is None or n <= last)]
    again = list(takeovers(directory, (n for n in known if n > start.segment)))
    for over in again:
        start = over.found(start) or start
    expected = None
    for number in known:
        over_it = newest_takeover(number, again)
        if number < start.segment or (over_it and over_it.begins.segment < number):
            continue
        if expected is not None and number != expected:
            return
        expected = over_it.number if over_it else number + 1
        limit = over_it.begins.offset if over_it else None
        size = stop.offset if stop is not None and number == stop.segment else limit
        offset = start.offset if number == start.segment else 0
        end = max(offset, len(MAGIC))  # a sealed segment may have no records
        for payload, end in read_segment(directory, number, offset, size, ends_only=ends_only):
            yield payload, Position(number, end)
        if end < (segment_size(directory, number) if size is None else limit or 0):
            return


def readable_end(directory: Path, start: Position = START) -> Position:
    """The position at which `read` from `start` ends. Reads everything."""
    end = start
    for _, position in read(directory, start, ends_only=True):
        end = position
    return end
