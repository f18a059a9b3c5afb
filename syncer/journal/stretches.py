"""A segment of the journal as it lies in storage: in stretches, which follow one another.

Object stores cannot append. So what a publication adds to a segment is an object of its own,
`000003+8192.log` for what begins at offset 8192; the stretch at offset 0 is `000003.log`, which is
also what a segment is called on this machine. Small stretches are put again as part of a longer
one. It keeps the name of the first of them and begins with the same bytes, so that whoever goes
by an older head still finds what it names: the first `size` bytes. Lengths fall by half at least
from one stretch to the next, so a segment has a few of them, and each byte travels a few times.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.dataclass import dataclass
from holdfast.syncer.files.durable import fsync_file, write_all
from holdfast.syncer.files.regular import open_regular, regular_descriptor

# What is longer is not put once more for the sake of what follows it, and nothing longer is put.
LARGEST_PUT: Final = 32 << 20
_BLOCK = 1 << 20
_NAME = re.compile(r"([0-9]{6,12})(?:\+([0-9]{1,15}))?\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Bytes of a segment, from the offset `start` on. `crc32` is None where it is not known."""

    segment: int
    start: int
    size: int
    crc32: int | None

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def name(self) -> str:
        return stretch_name(self.segment, self.start)

    def is_of(self, data: bytes) -> bool:
        """Whether these bytes begin with the stretch."""
        known = data[: self.size]
        crc32 = self.crc32
        return len(known) == self.size and (crc32 is None or zlib.crc32(known) == crc32)

    def plain(self) -> dict[str, Any]:
        """As the head names it."""
        return {"name": self.name, "size": self.size, "crc32": self.crc32}


def stretch_name(segment: int, start: int) -> str:
    return f"{segment:06d}+{start}.log" if start else f"{segment:06d}.log"


def place_of(name: str) -> tuple[int, int] | None:
    """The segment of the stretch of this name, and the offset at which it begins there; None for
    any other name."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2] or 0)) if found else None


def stretch_of(entry: Mapping[str, Any]) -> Stretch:
    """The stretch that a head names, as `parse_head` gives it."""
    place = place_of(entry["name"])
    if place is None:
        raise ValueError(f"{entry['name']!r:.100} is not the name of a part of the journal")
    return Stretch(segment=place[0], start=place[1], size=entry["size"], crc32=entry.get("crc32"))


def next_start(published: Sequence[Stretch], end: int, *, is_complete: bool) -> int | None:
    """Where the object begins that takes in what follows the `published` stretches, up to `end`;
    None where there is nothing to put.

    `is_complete`: nothing more will follow in this segment, so that all of it becomes one object.
    """
    start = published[-1].end if published else 0
    becomes_one = is_complete and end <= LARGEST_PUT
    if start >= end and (len(published) == 1 or not becomes_one):
        return None
    if becomes_one:
        return 0
    for stretch in reversed(published):
        if stretch.size >= 2 * (end - start) or end - stretch.start > LARGEST_PUT:
            break
        start = stretch.start
    return start


def read_stretch(journal: Path, segment: int, start: int, size: int) -> bytes:
    """Bytes of a segment, fewer where it ends earlier. Raises OSError."""
    with SegmentFile(journal, segment) as file:
        file.seek(start)
        return file.read(size)


def is_here(journal: Path, stretch: Stretch) -> bool:
    """Whether the journal on this machine has these bytes. Raises OSError."""
    try:
        data = read_stretch(journal, stretch.segment, stretch.start, stretch.size)
    except FileNotFoundError:
        return False
    return stretch.is_of(data)


def segment_size(journal: Path, segment: int) -> int:
    """How many bytes there are of it. Raises OSError."""
    end = 0
    with suppress(FileNotFoundError):
        while size := os.stat(journal / stretch_name(segment, end)).st_size:
            end += size
    if not end:
        os.stat(journal / stretch_name(segment, 0))  # raises where there is none
    return end


def join_stretches(journal: Path) -> None:
    """Have each segment whole in its own file, as whoever writes in it needs it.

    So it is after a download, and in a directory that served as storage and is continued in
    place. A death at any moment leaves what was there. Raises OSError.
    """
    names = os.listdir(journal)
    later = (place for place in map(place_of, names) if place is not None and place[1])
    for segment in sorted({segment for segment, _ in later}):
        path = journal / stretch_name(segment, 0)
        if not path.exists():
            continue
        target = regular_descriptor(path, os.O_WRONLY | os.O_APPEND)
        try:
            with SegmentFile(journal, segment) as source:
                source.seek(os.fstat(target).st_size)
                while data := source.read(_BLOCK):
                    write_all(target, data)
            fsync_file(target)
        finally:
            os.close(target)


class SegmentFile:
    """The bytes of a segment, one after the other: of its file, and of the stretches that follow
    where it lies as it does in storage. Raises OSError where there is none."""

    def __init__(self, journal: Path, segment: int) -> None:
        self._journal = journal
        self._segment = segment
        self._start = 0
        self._file = _opened(journal, segment, 0)

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def seek(self, offset: int) -> None:
        """Go to an offset of the segment, further on than here."""
        while offset > (end := self._start + os.fstat(self._file.fileno()).st_size):
            if not self._go_on_at(end):
                break
        self._file.seek(offset - self._start)

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        data = self._file.read(size)
        while len(data) < size and self._go_on_at(self._start + self._file.tell()):
            data += self._file.read(size - len(data))
        return data

    def _go_on_at(self, start: int) -> bool:
        """Whether there is a stretch that begins here."""
        if start == self._start:
            return False  # this one is empty, and would follow itself for ever
        try:
            following = _opened(self._journal, self._segment, start)
        except FileNotFoundError:
            return False
        self._file.close()
        self._file, self._start = following, start
        return True


def _opened(journal: Path, segment: int, start: int) -> BinaryIO:
    return open_regular(journal / stretch_name(segment, start))
