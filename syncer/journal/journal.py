"""The journal: an append-only list of records, whole or absent, in numbered segments.

A record is `length (u32) | crc32 (u32) | payload`, little-endian; a segment begins with eight
bytes of magic and version. `append` is one `write` for all the records of a turn of the loop: when
it returns, no death of a process loses them. `sync` makes them outlive a power cut. What a crash
left torn at the end is cut off, and told, when the journal is next opened for writing.

What is not known to be on the disk is kept in memory: after an fsync that failed it is written to
another segment (`holdfast.syncer.journal.segment`), for the kernel may have dropped it.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.forked import give_up_in_children
from holdfast.syncer.errors import NoAnswer, StorageError
from holdfast.syncer.files.durable import (
    TEMPORARY,
    fsync_dir,
    fsync_file,
    fsync_path,
    make_folder,
    unique,
    write_all,
    write_atomic,
)
from holdfast.syncer.files.regular import read_regular
from holdfast.syncer.journal.fsync import Unsynced
from holdfast.syncer.journal.segment import (
    HEADER,
    MAGIC,
    Position,
    RecordSpan,
    Takeover,
    check_magic,
    first_record,
    last_word,
    segment_name,
    start_of,
    takeovers,
)
from holdfast.syncer.journal.stretches import SegmentFile, join_stretches, segment_size

__all__ = [
    "LARGEST_RECORD",
    "MAGIC",
    "SEGMENT_BYTES",
    "START",
    "DamagedTail",
    "Journal",
    "JournalFull",
    "Position",
    "Unsynced",
    "read",
    "read_segment",
    "readable_end",
    "segment_name",
    "segments",
]

LARGEST_RECORD = 1 << 30
# Where the next segment begins: what a publication puts again at most, and a handful of files for
# a million rows.
SEGMENT_BYTES = 1 << 24
_BLOCK = 1 << 20
# What waits for an fsync stands in memory: a disk that does not answer must not fill that.
_LARGEST_UNFORCED = 1 << 28


class JournalFull(StorageError):
    """The journal takes no more records: the disk is full, or gone."""


START = Position()
_SEGMENT = re.compile(r"[0-9]{6,12}\.log")


@dataclass(frozen=True, slots=True)
class DamagedTail:
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


def segments(directory: Path) -> list[int]:
    """The numbers of the segments that are there, ascending."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = {int(name[:-4]) for name in names if _SEGMENT.fullmatch(name)}
    return sorted(number for number in numbers if segment_name(number) in names)


def read_segment(
    directory: Path, number: int, offset: int = 0, size: int | None = None
) -> Iterator[tuple[bytes, int]]:
    """Payload and end offset of each record of one segment, up to the first that is not whole.

    `size` reads no further than so many bytes of the file. A block of it at a time is in memory.
    """
    with SegmentFile(directory, number) as file:
        if offset < len(MAGIC):
            offset = _first_record(file, directory / segment_name(number))
            if not offset:
                return
        end = segment_size(directory, number)
        file.seek(offset)
        yield from _records(file, offset, end if size is None else min(size, end))


def _first_record(file: SegmentFile, path: Path) -> int:
    """Where the first record of an event stands; 0 without a sound beginning."""
    start = file.read(len(MAGIC))
    if not check_magic(start, path):
        return 0
    if start != MAGIC:
        start += file.read(HEADER.size)
        length = HEADER.unpack_from(start, len(MAGIC))[0] if len(start) > len(MAGIC) + 7 else 0
        start += file.read(min(length, LARGEST_RECORD))
    return first_record(start)


def _records(file: SegmentFile, offset: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Each whole record between two offsets; ends at the first bad one."""
    crc32, unpack, size = zlib.crc32, HEADER.unpack_from, HEADER.size
    data, at = b"", 0
    while end - offset > size:
        length = 0
        while at + size <= len(data):
            length, crc = unpack(data, at)
            payload = data[at + size : at + size + length]
            if len(payload) < length:
                break
            # Nothing but zeros, which a power cut leaves on some file systems, has a valid CRC.
            if not length or crc32(payload) != crc:
                return
            at += size + length
            offset += size + length
            yield payload, offset
        if length > end - offset - size:
            return
        data, at = data[at:], 0
        more = file.read(min(max(_BLOCK, size + length), end - offset - len(data)))
        if not more:
            return
        data += more


def read(
    directory: Path, start: Position = START, stop: Position | None = None
) -> Iterator[tuple[bytes, Position]]:
    """Payload and end position of each record from `start` to `stop`.

    Reading ends at the first record that is not whole, also when later segments follow: what
    comes after a hole cannot be trusted to follow from what came before it.
    """
    last = None if stop is None else stop.segment
    known = [n for n in segments(directory) if n >= start.segment and (last is None or n <= last)]
    again = list(takeovers(directory, (n for n in known if n > start.segment)))
    for over in again:
        start = over.found(start) or start
    expected = None
    for number in known:
        over_it = last_word(number, again)
        if number < start.segment or (over_it and over_it.begins.segment < number):
            continue
        if expected is not None and number != expected:
            return
        expected = over_it.number if over_it else number + 1
        limit = over_it.begins.offset if over_it else None
        size = stop.offset if stop is not None and number == stop.segment else limit
        offset = start.offset if number == start.segment else 0
        end = max(offset, len(MAGIC))  # a segment may be sealed before it has a record
        for payload, end in read_segment(directory, number, offset, size):
            yield payload, Position(number, end)
        if end < (segment_size(directory, number) if size is None else limit or 0):
            return


def readable_end(directory: Path, start: Position = START) -> Position:
    """Where `read` from `start` would end: nothing behind it may be relied on. Reads all of it."""
    end = start
    for _, position in read(directory, start):
        end = position
    return end


class Journal:
    """The one writer of an experiment's journal. The experiment's lock is held by its owner."""

    def __init__(
        self,
        directory: Path,
        *,
        fresh: bool = False,
        begins: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Open for appending, cutting off a torn tail (see `cuts`).

        `fresh` begins a new segment even where the last one is sound. What is before the segment
        `begins` is of earlier experiments: a damage there takes nothing from this one.
        """
        self.directory = directory
        self.cuts: list[DamagedTail] = []
        self._segment_bytes = segment_bytes
        make_folder(directory)
        join_stretches(directory)
        self._unsynced = False
        self._sealed: deque[tuple[int, int]] = deque()
        self._unforced: deque[tuple[Position, bytes]] = deque()
        self._unforced_bytes = 0
        # What is before it and was not forced yet is not in memory any more.
        self._forgotten = START
        self._renewed: Takeover | None = None
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
        give_up_in_children(self)

    @property
    def position(self) -> Position:
        """The end: where the next record will stand."""
        return Position(self._number, self._size)

    def append(self, payloads: Iterable[bytes]) -> Position:
        """Write all payloads with one call and return the position after them.

        Raises JournalFull when the disk takes no more: nothing of them is then in the journal.
        """
        if self._size >= self._segment_bytes:
            with suppress(JournalFull):  # this one still takes records
                self.rotate()
        crc32, pack = zlib.crc32, HEADER.pack
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
        self._unforced.append((self.position, data))
        self._unforced_bytes += len(data)
        self._size += len(data)
        self._unsynced = True
        if self._unforced_bytes > _LARGEST_UNFORCED:
            self._unforced.clear()
            self._unforced_bytes, self._forgotten = 0, self.position
        return self.position

    def unsynced(self) -> Unsynced:
        """What a sync has to force to the disk: taken by the writer, forced in any thread.

        A descriptor looked up only in that thread could be the next segment's by then.
        """
        sealed, self._sealed = self._sealed, deque()
        renewed, self._renewed = self._renewed, None
        is_changed, self._unsynced = self._unsynced, False
        return Unsynced(
            position=self.position,
            current=self._fd,
            is_changed=is_changed,
            sealed=sealed,
            directory=self.directory,
            renewed=renewed,
        )

    def forced(self, position: Position) -> None:
        """Everything before `position` is on the disk, and need not be kept in memory."""
        while self._unforced and self._unforced[0][0] < position:
            self._unforced_bytes -= len(self._unforced.popleft()[1])
        if position >= self._forgotten:
            self._forgotten = START

    def write_again(self, failed: Unsynced) -> None:
        """Begin a segment that takes the place of all that is not known to be on the disk.

        After an fsync that failed the kernel may have dropped what it could not write, and the
        next one says nothing of that. The new segment appears whole, under its name at once: until
        the next sync it outlives the death of any process, as what it stands for did. Raises
        OSError, or JournalFull where that cannot be had from memory any more.
        """
        if self._forgotten != START:
            raise JournalFull(
                "keep the journal",
                str(self.directory),
                f"more than {_LARGEST_UNFORCED >> 20} MiB waited to be forced to the disk",
            )
        pieces = self._pieces()
        number = self._number + 1
        start, renewed = start_of(number, pieces)
        data = b"".join([start, *(data for _, data in self._unforced)])
        descriptor = self._place(number, data)
        replaced = [*failed.sealed, *self._sealed, (self._number, self._fd)]
        failed.sealed.clear()
        self._sealed.clear()
        self._number, self._fd, self._size = number, descriptor, len(data)
        for _, old in replaced:
            os.close(old)
        self._unforced = deque(_moved(self._unforced, Position(number, renewed.base)))
        self._renewed, self._unsynced = renewed, True

    def _pieces(self) -> list[RecordSpan]:
        pieces: list[RecordSpan] = []
        for at, data in self._unforced:
            if pieces and pieces[-1].segment == at.segment:
                last = pieces.pop()
                pieces.append(RecordSpan(last.segment, last.offset, last.length + len(data)))
            else:
                pieces.append(RecordSpan(at.segment, at.offset, len(data)))
        return pieces or [RecordSpan(self._number, self._size, 0)]

    def _place(self, number: int, data: bytes) -> int:
        """A descriptor of the segment, which nobody sees before it has all its bytes."""
        temporary = self.directory / f"{TEMPORARY}{unique()}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644)
        try:
            write_all(descriptor, data)
            os.rename(temporary, self.directory / segment_name(number))
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        return descriptor

    def sync(self) -> Position:
        """Make everything appended so far outlive a power cut. Blocks.

        Raises OSError where the disk refused it twice or does not answer, or JournalGone.
        """
        unsynced = self.unsynced()
        try:
            position = unsynced.force()
        except NoAnswer:
            raise
        except OSError:
            self.write_again(unsynced)
            position = self.unsynced().force()
        self.forced(position)
        return position

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
        self._sealed.append((number, sealed))
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
        """Raises OSError or JournalGone, as `sync` does; closed it is in any case."""
        try:
            self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close it as it is: what could not be forced to the disk is known to be lost."""
        descriptors = [*(descriptor for _, descriptor in self._sealed), self._fd]
        self._sealed.clear()
        self._fd = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def give_up(self) -> None:
        """A forked child is no second writer."""
        self.abandon()

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
        again = list(takeovers(self.directory, known))
        for at, number in enumerate(known):
            path = self.directory / segment_name(number)
            follows = at == 0 or known[at - 1] == number - 1
            end = _sound_end(self.directory, number)
            over = last_word(number, again)
            size = path.stat().st_size if over is None else over.limit(number)
            if follows and end and (end == size or (over and end >= (size or 0))):
                continue
            keep = bool(end) and follows
            self._cut(path, end if keep else 0)
            for later in known[at + 1 :]:
                self._cut(self.directory / segment_name(later), 0)
            return known[: at + 1] if keep else known[:at]
        return known

    def _cut(self, path: Path, offset: int) -> None:
        data = read_regular(path)[offset:]
        aside = path.with_name(f"{path.stem}.cut-{offset}")
        for number in count(2):  # what was put aside at an earlier time stays
            if not aside.exists():
                break
            aside = path.with_name(f"{path.stem}.cut-{offset}-{number}")
        write_atomic(aside, data)
        if offset:
            os.truncate(path, offset)
        else:
            path.unlink()
        self.cuts.append(
            DamagedTail(segment=path.name, offset=offset, size_bytes=len(data), kept_as=aside.name)
        )


def _sound_end(directory: Path, number: int) -> int:
    """Where the last whole record ends, or the first would stand; 0 without a sound beginning."""
    with SegmentFile(directory, number) as file:
        end = _first_record(file, directory / segment_name(number))
    for _, after in read_segment(directory, number):
        end = after
    return end


def _moved(
    unforced: Iterable[tuple[Position, bytes]], start: Position
) -> Iterator[tuple[Position, bytes]]:
    """The same, where they stand from now on."""
    offset = start.offset
    for _, data in unforced:
        yield Position(start.segment, offset), data
        offset += len(data)
