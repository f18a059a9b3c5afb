"""A segment of the journal in storage: one object for each of its consecutive stretches.

Object stores cannot append, so each addition to a segment is a new object. `000003+8192.log` has
the bytes of segment 3 from offset 8192 on; `000003.log` has those from offset 0 on, and is also
the name of the whole segment on this machine. The object head.json names all stretches that are
published (`parse_head`).

Small stretches are merged: they are uploaded again as one object, which replaces the first of
them and begins with the same bytes. So a reader with an older head, which names the first `size`
bytes, can still read those. Each stretch is at most half as long as the one before it. So a
segment has few stretches, and each byte is uploaded a few times.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.dataclass import dataclass
from holdfast.names import inner_path, shown
from holdfast.syncer.files.durable import fsync_file, write_all
from holdfast.syncer.files.tree import open_regular, regular_descriptor
from holdfast.syncer.stores.store import parse_table

# The largest merged stretch; longer stretches are not merged.
LARGEST_PUT: Final = 32 << 20
_BLOCK = 1 << 20
_NAME = re.compile(r"([0-9]{6,12})(?:\+([0-9]{1,15}))?\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """`size` bytes of a segment from the offset `start` on. `crc32` is None if not known."""

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
        """True if `data` begins with the bytes of the stretch."""
        known = data[: self.size]
        crc32 = self.crc32
        return len(known) == self.size and (crc32 is None or zlib.crc32(known) == crc32)

    def plain(self) -> dict[str, Any]:
        """The stretch's entry in a head."""
        return {"name": self.name, "size": self.size, "crc32": self.crc32}


def stretch_name(segment: int, start: int) -> str:
    return f"{segment:06d}+{start}.log" if start else f"{segment:06d}.log"


def parse_stretch_name(name: str) -> tuple[int, int] | None:
    """The segment and start offset of the stretch with this name; None for any other name."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2] or 0)) if found else None


def stretch_of(entry: Mapping[str, Any]) -> Stretch:
    """The stretch for an entry of a head, as `parse_head` returns it."""
    parsed = parse_stretch_name(entry["name"])
    if parsed is None:
        raise ValueError(f"{entry['name']!r:.100} is not the name of a part of the journal")
    segment, start = parsed
    return Stretch(segment=segment, start=start, size=entry["size"], crc32=entry.get("crc32"))


def next_start(published: Sequence[Stretch], end: int, *, is_complete: bool) -> int | None:
    """Where the next object to upload begins, after the `published` stretches; None if there is
    nothing to upload. The object ends at `end`, the end of the segment so far.

    `is_complete`: the segment will not grow, so all its stretches are merged.
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
    """Read `size` bytes of a segment, fewer at its end. Raises OSError."""
    with SegmentFile(journal, segment) as file:
        file.seek(start)
        return file.read(size)


def is_here(journal: Path, stretch: Stretch) -> bool:
    """True if the journal on this machine has the bytes of the stretch. Raises OSError."""
    try:
        data = read_stretch(journal, stretch.segment, stretch.start, stretch.size)
    except FileNotFoundError:
        return False
    return stretch.is_of(data)


def segment_size(journal: Path, segment: int) -> int:
    """The size of a segment in bytes. Raises OSError."""
    end = 0
    with suppress(FileNotFoundError):
        while size := os.stat(journal / stretch_name(segment, end)).st_size:
            end += size
    if not end:
        os.stat(journal / stretch_name(segment, 0))  # raises if there is none
    return end


def join_stretches(journal: Path) -> None:
    """Join the stretches of each segment into one file, for a writer.

    Needed after a download, and for a directory that served as storage and is continued in place.
    A crash at any moment loses no bytes. Raises OSError.
    """
    names = os.listdir(journal)
    parsed = filter(None, map(parse_stretch_name, names))
    for segment in sorted({segment for segment, start in parsed if start}):
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
    """Reads a segment as one file, whether its stretches are joined or not.

    Raises OSError if there is none.
    """

    def __init__(self, journal: Path, segment: int) -> None:
        self._journal = journal
        self._segment = segment
        self._start = 0
        self._file = _open_stretch(journal, segment, 0)

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def seek(self, offset: int) -> None:
        """Go forward to an offset of the segment."""
        while offset > (end := self._start + os.fstat(self._file.fileno()).st_size):
            if not self._open_next(end):
                break
        self._file.seek(offset - self._start)

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer only at the end."""
        data = self._file.read(size)
        while len(data) < size and self._open_next(self._start + self._file.tell()):
            data += self._file.read(size - len(data))
        return data

    def _open_next(self, start: int) -> bool:
        """Open the stretch that begins here; return whether there is one."""
        if start == self._start:
            return False  # the current stretch is empty, so the next would be itself
        try:
            following = _open_stretch(self._journal, self._segment, start)
        except FileNotFoundError:
            return False
        self._file.close()
        self._file, self._start = following, start
        return True


def _open_stretch(journal: Path, segment: int, start: int) -> BinaryIO:
    return open_regular(journal / stretch_name(segment, start))


FORMAT = 2
# A million segments take 100 bytes each.
HEAD_BYTES = 128 << 20
_MOST = 1 << 53


def parse_head(data: bytes) -> dict[str, Any]:
    """The content of a head: `format`, `experiment_id`, `epoch`, and `segments` as dicts of
    `name`, `size` and `crc32`.

    `epoch` is the key of the claim, and `segments` are stretches. Raises ValueError.
    """
    head = parse_table(data)
    if head.get("format") != FORMAT:
        raise ValueError(
            f"it has format {shown(head.get('format'))}, but this version reads {FORMAT}"
        )
    for name in ("experiment_id", "epoch"):
        if type(head.setdefault(name, "")) is not str:
            raise ValueError(f"{name} must be text, not {shown(head[name])}")
    if head["epoch"]:
        inner_path(head["epoch"], "epoch")
    segments = head.get("segments")
    if type(segments) is not list:
        raise ValueError(f"segments must be a list, not {shown(segments)}")
    for segment in segments:
        _check_segment(segment)
    if len({segment["name"] for segment in segments}) != len(segments):
        raise ValueError("two segments have the same name")
    return head


def encode_head(*, experiment_id: str, epoch: str, stretches: Iterable[Stretch]) -> bytes:
    """Encode a head, with a line for each stretch."""
    plain = {"format": FORMAT, "experiment_id": experiment_id, "epoch": epoch}
    start = json.dumps(plain, indent=1).rstrip("\n}")
    lines = ",\n".join(f"  {json.dumps(stretch.plain())}" for stretch in stretches)
    return f'{start},\n "segments": [\n{lines}\n ]\n}}\n'.encode()


def stretches_of(head: Mapping[str, Any]) -> list[Stretch]:
    """The stretches that a head names."""
    return [stretch_of(segment) for segment in head["segments"]]


def is_segment(name: object) -> bool:
    """True if this can be the name of a segment of the journal, or of a stretch of one."""
    return type(name) is str and parse_stretch_name(name) is not None


def _check_segment(segment: Any) -> None:
    if type(segment) is not dict or not is_segment(segment.get("name")):
        named = segment.get("name") if type(segment) is dict else segment
        raise ValueError(f"a segment must have a name like 000001.log, not {shown(named)}")
    for field in ("size", "crc32"):
        value = segment.get(field)
        if type(value) is not int or not 0 <= value <= _MOST:
            raise ValueError(f"{field} of {segment['name']} must be a number, not {shown(value)}")
