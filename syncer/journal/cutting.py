"""Cuts damaged bytes off the journal, and keeps them in a file next to their segment."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.files.durable import fsync_dir, fsync_path, write_atomic
from holdfast.syncer.files.regular import open_regular, read_regular
from holdfast.syncer.journal.reading import begins_at, read_segment
from holdfast.syncer.journal.segment import (
    MAGIC,
    Position,
    newest_takeover,
    segment_name,
    takeovers,
)
from holdfast.syncer.journal.stretches import SegmentFile


@dataclass(frozen=True, slots=True)
class DamagedTail:
    """Bytes that are not valid records, and the name of the file that keeps them."""

    segment: str
    offset: int
    size_bytes: int
    kept_as: str

    def __str__(self) -> str:
        return (
            f"{self.segment}: {self.size_bytes} bytes from offset {self.offset} on are not valid "
            f"records. Everything before them is used; they are kept as {self.kept_as}"
        )


def seal(
    directory: Path, known: list[int], read_until: Position | None = None
) -> tuple[list[int], list[DamagedTail]]:
    """Cut off everything after the first unreadable byte. Returns the remaining segments.

    `read_until`: where the caller's reading of these segments has just ended; None to read them
    here. Raises OSError.
    """
    again = list(takeovers(directory, known))
    if again or read_until is None:  # a reader passes over what was taken over
        read_until = Position()
    for at, number in enumerate(known):
        path = directory / segment_name(number)
        follows = at == 0 or known[at - 1] == number - 1
        end = _known_end(path, number, read_until) or _sound_end(directory, number)
        over = newest_takeover(number, again)
        size = path.stat().st_size if over is None else over.limit(number)
        if follows and end and (end == size or (over and end >= (size or 0))):
            continue
        keep = bool(end) and follows
        later = [directory / segment_name(number) for number in known[at + 1 :]]
        cuts = [cut_off(path, end if keep else 0), *(cut_off(path, 0) for path in later)]
        return known[: at + 1] if keep else known[:at], cuts
    return known, []


def _known_end(path: Path, number: int, read_until: Position) -> int:
    """The end of a segment's last record that was read; 0 if it has none, or was not read."""
    if number < read_until.segment:  # to its end, or it has no record
        size = path.stat().st_size
    else:
        size = read_until.offset if number == read_until.segment else 0
    return size if size > len(MAGIC) else 0


def _sound_end(directory: Path, number: int) -> int:
    """The end of the last complete record, or of the header if there is none; 0 if the header is
    damaged."""
    with SegmentFile(directory, number) as file:
        end = begins_at(file, directory / segment_name(number))
    for _, after in read_segment(directory, number, ends_only=True):
        end = after
    return end


def cut_off(path: Path, offset: int) -> DamagedTail:
    """Move the bytes of a segment from `offset` on to a separate file.

    They are forced to the disk there before they are removed from the segment. Raises OSError.
    """
    data = read_regular(path)[offset:]
    aside = name_aside(path, offset, data)
    if not aside.exists():
        write_atomic(aside, data)
    if offset:
        os.truncate(path, offset)
        fsync_path(path)
    else:
        path.unlink()
    fsync_dir(path.parent)
    return DamagedTail(segment=path.name, offset=offset, size_bytes=len(data), kept_as=aside.name)


def name_aside(path: Path, offset: int, data: bytes) -> Path:
    """A name for these bytes: an unused one, or that of a file that already has them."""
    for number in count(1):
        ending = f"-{number}" if number > 1 else ""
        aside = path.with_name(f"{path.stem}.cut-{offset}{ending}")
        if not os.path.lexists(aside) or _holds(aside, data):
            return aside
    raise AssertionError("count has no end")


def _holds(path: Path, data: bytes) -> bool:
    with open_regular(path) as file:
        return file.read(len(data) + 1) == data
