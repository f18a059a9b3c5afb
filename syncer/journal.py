"""The journal: an append-only list of records, whole or absent, in numbered segments.

A record is `length (u32) | crc32 (u32) | payload`, little-endian; a segment begins with eight
bytes of magic and version. `append` is one `write` for all the records of a turn of the loop: when
it returns, no death of a process loses them. `sync` makes them outlive a power cut. What a crash
left torn at the end is cut off, and told, when the journal is next opened for writing.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.durable import fsync_dir, fsync_file, fsync_path
from holdfast.syncer.errors import StorageError

MAGIC = b"HFJRNL\x00\x01"
_HEADER = struct.Struct("<II")
LARGEST_RECORD = 1 << 30


class JournalFull(StorageError):
    """The journal takes no more records: the disk is full, or gone."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two records: `offset` bytes into segment number `segment`."""

    segment: int = 0
    offset: int = 0


START = Position()


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that could not be read as records, and where they were put aside."""

    segment: str
    offset: int
    size_bytes: int
    kept_as: str

    def __str__(self) -> str:
        return (
            f"{self.segment}: {self.size_bytes} bytes from offset {self.offset} on are no valid "
            f"records; everything before them is used, they are kept as {self.kept_as}"
        )


def segment_name(number: int) -> str:
    return f"{number:06d}.log"


def segments(directory: Path) -> list[int]:
    """The numbers of the segments that are there, ascending."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(
        int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit()
    )


def _records(data: bytes, offset: int) -> Iterator[tuple[bytes, int]]:
    """Payload and end offset of each whole record from `offset` on; ends at the first bad one."""
    end = len(data)
    while offset + _HEADER.size <= end:
        length, crc = _HEADER.unpack_from(data, offset)
        start = offset + _HEADER.size
        payload = data[start : start + length]
        # Nothing but zeros, which a power cut leaves on some file systems, has a valid CRC.
        if not length or len(payload) < length or zlib.crc32(payload) != crc:
            return
        offset = start + length
        yield payload, offset


def read_segment(
    directory: Path, number: int, offset: int = 0, size: int | None = None
) -> Iterator[tuple[bytes, int]]:
    """Payload and end offset of each record of one segment, up to the first that is not whole.

    `size` reads no further than so many bytes of the file.
    """
    with open(directory / segment_name(number), "rb") as file:
        if offset < len(MAGIC):
            if file.read(len(MAGIC)) != MAGIC:
                return
            offset = len(MAGIC)
        file.seek(offset)
        data = file.read() if size is None else file.read(max(0, size - offset))
    for payload, end in _records(data, 0):
        yield payload, offset + end


def read(
    directory: Path, start: Position = START, stop: Position | None = None
) -> Iterator[tuple[bytes, Position]]:
    """Payload and end position of each record from `start` to `stop`.

    Reading ends at the first record that is not whole, also when later segments follow: what
    comes after a hole cannot be trusted to follow from what came before it.
    """
    expected = None
    for number in segments(directory):
        if number < start.segment or (stop is not None and number > stop.segment):
            continue
        if expected is not None and number != expected:
            return
        expected = number + 1
        size = stop.offset if stop is not None and number == stop.segment else None
        offset = start.offset if number == start.segment else 0
        end = max(offset, len(MAGIC))  # a segment may be sealed before it has a record
        for payload, end in read_segment(directory, number, offset, size):
            yield payload, Position(number, end)
        if size is None and end < (directory / segment_name(number)).stat().st_size:
            return


def readable_end(directory: Path, start: Position = START) -> Position:
    """Where `read` from `start` would end: nothing behind it may be relied on. Reads all of it."""
    end = start
    for _, position in read(directory, start):
        end = position
    return end


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsynced:
    """What was appended up to `position` and may not be on the disk yet."""

    position: Position
    current: int | None
    sealed: deque[int]
    directory: Path

    def force(self) -> Position:
        """Make it outlive a power cut. Blocks: call it in a thread.

        Raises OSError; `Journal.take_back` then has it tried again.
        """
        has_sealed = bool(self.sealed)
        while self.sealed:
            fsync_file(self.sealed[0])
            os.close(self.sealed.popleft())
        if has_sealed:
            fsync_dir(self.directory)
        if self.current is not None:
            _fdatasync(self.current)
        return self.position


class Journal:
    """The one writer of an experiment's journal. The experiment's lock is held by its owner."""

    def __init__(self, directory: Path, *, fresh: bool = False, begins: int = 0) -> None:
        """Open for appending, cutting off a torn tail (see `cuts`).

        `fresh` begins a new segment even where the last one is sound. What is before the segment
        `begins` is of earlier experiments: a damage there takes nothing from this one.
        """
        self.directory = directory
        self.cuts: list[Cut] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._unsynced = False
        self._sealed: deque[int] = deque()
        self._number, self._fd, self._size = -1, -1, 0
        known = segments(directory)
        for number in known:
            if number < begins:
                self._seal([number])
        sound = self._seal([number for number in known if number >= begins])
        # Whoever wrote them may have been killed before they were on the disk.
        for number in sound:
            fsync_path(directory / segment_name(number))
        fsync_dir(directory)
        if sound and not fresh:
            self._open(sound[-1])
        else:
            self._create((known[-1] + 1) if known else 0)
            fsync_file(self._fd)
            fsync_dir(self.directory)

    @property
    def position(self) -> Position:
        """The end: where the next record will stand."""
        return Position(self._number, self._size)

    def append(self, payloads: Iterable[bytes]) -> Position:
        """Write all payloads with one call and return the position after them.

        Raises JournalFull when the disk takes no more: nothing of them is then in the journal.
        """
        crc32, pack = zlib.crc32, _HEADER.pack
        data = b"".join([pack(len(p), crc32(p)) + p for p in payloads])
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            with suppress(OSError):  # what is torn there then is cut off when it is next opened
                os.ftruncate(self._fd, self._size)
            raise JournalFull(
                "append to the journal",
                str(self.directory / segment_name(self._number)),
                error.strerror or str(error),
                "Nothing that was acknowledged is lost: make space, then restore",
            ) from error
        self._size += len(data)
        self._unsynced = True
        return self.position

    def unsynced(self) -> Unsynced:
        """What a sync has to force to the disk: taken by the writer, forced in any thread.

        A descriptor looked up only in that thread could be the next segment's by then.
        """
        sealed, self._sealed = self._sealed, deque()
        current = self._fd if self._unsynced else None
        self._unsynced = False
        return Unsynced(
            position=self.position,
            current=current,
            sealed=sealed,
            directory=self.directory,
        )

    def take_back(self, unsynced: Unsynced) -> None:
        """It could not be forced: the next sync tries again."""
        self._sealed.extendleft(reversed(unsynced.sealed))
        self._unsynced = True

    def sync(self) -> Position:
        """Make everything appended so far outlive a power cut. Blocks."""
        return self.unsynced().force()

    def rotate(self) -> int:
        """Seal the segment, begin the next one and return the sealed one's number.

        One without a record stays as it is, and the number is that of the segment before. Waits
        for no disk: the sealed segment is durable after the next `sync`. Raises JournalFull where
        there is no room for another; then the segment is not sealed.
        """
        number, sealed = self._number, self._fd
        if self._size == len(MAGIC):
            return number - 1
        try:
            self._create(number + 1)
        except OSError as error:
            path = self.directory / segment_name(number + 1)
            self._give_up(path, number, sealed)
            raise JournalFull(
                "begin a segment of the journal", str(path), error.strerror or str(error)
            ) from error
        self._sealed.append(sealed)
        self._unsynced = True
        return number

    def _give_up(self, path: Path, number: int, fd: int) -> None:
        """Go on in segment `number`, whose descriptor is `fd`: the next could not be begun."""
        if self._fd != fd:
            os.close(self._fd)
            path.unlink(missing_ok=True)
        self._number, self._fd = number, fd
        self._size = os.fstat(fd).st_size

    def close(self) -> None:
        self.sync()
        os.close(self._fd)

    def _open(self, number: int) -> None:
        self._number = number
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.directory / segment_name(number), flags, 0o644)
        self._size = os.fstat(self._fd).st_size

    def _create(self, number: int) -> None:
        self._open(number)
        os.write(self._fd, MAGIC)
        self._size = len(MAGIC)

    def _seal(self, known: list[int]) -> list[int]:
        """Put aside everything from the first unreadable byte on; return the sound segments."""
        for at, number in enumerate(known):
            path = self.directory / segment_name(number)
            ends = [end for _, end in read_segment(self.directory, number)]
            end = ends[-1] if ends else len(MAGIC)
            size = path.stat().st_size
            whole = size >= end and _begins_well(path)
            if whole and size == end and (at == 0 or known[at - 1] == number - 1):
                continue
            keep = whole and (at == 0 or known[at - 1] == number - 1)
            self._cut(path, end if keep else 0)
            for later in known[at + 1 :]:
                self._cut(self.directory / segment_name(later), 0)
            return known[: at + 1] if keep else known[:at]
        return known

    def _cut(self, path: Path, offset: int) -> None:
        data = path.read_bytes()[offset:]
        aside = path.with_name(f"{path.stem}.cut-{offset}")
        for number in count(2):  # what was put aside at an earlier time stays
            if not aside.exists():
                break
            aside = path.with_name(f"{path.stem}.cut-{offset}-{number}")
        aside.write_bytes(data)
        if offset:
            os.truncate(path, offset)
        else:
            path.unlink()
        self.cuts.append(
            Cut(segment=path.name, offset=offset, size_bytes=len(data), kept_as=aside.name)
        )


def _begins_well(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


# macOS has no fdatasync.
_fdatasync = getattr(os, "fdatasync", fsync_file)
