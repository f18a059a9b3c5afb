"""Reads the journal: its segments, and their complete records, in order."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.syncer.journal.segment import (
    HEADER,
    MAGIC,
    Position,
    check_magic,
    newest_takeover,
    read_record,
    segment_name,
    takeovers,
)
from holdfast.syncer.journal.stretches import SegmentFile, segment_size

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
