"""The journal: an append-only list of records in numbered segments.

A record is `length (u32) | crc32 (u32) | payload`, little-endian; a segment begins with eight
bytes of magic and version. `append` writes all records of a turn of the loop to the kernel with
one `write`: when it returns, no death of a process loses them. `Unsynced.force` forces them to the
disk: when it returns, no power cut loses them. A run calls it in a thread (`unsynced`, `forced`);
`sync` does all of it at once. If a crash leaves an incomplete record at the end, it is
cut off and reported when the journal is next opened for writing.

Records stay in memory until they are forced to the disk. After a failed fsync the kernel may have
dropped them, so they are written again, to another segment (`holdfast.syncer.journal.segment`).
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.errors import Remedy
from holdfast.forked import close_in_children
from holdfast.syncer.errors import NoAnswer, StorageError
from holdfast.syncer.files.durable import (
    TEMPORARY,
    fdatasync_file,
    fsync_dir,
    fsync_file,
    fsync_path,
    make_folder,
    unique,
    write_all,
    write_atomic,
)
from holdfast.syncer.files.tree import open_regular, read_regular
from holdfast.syncer.journal.segment import (
    HEADER,
    LARGEST_RECORD,
    MAGIC,
    START,
    Position,
    RecordSpan,
    Takeover,
    begins_at,
    newest_takeover,
    read,
    read_segment,
    readable_end,
    segment_name,
    segments,
    start_of,
    takeovers,
)
from holdfast.syncer.journal.stretches import SegmentFile, join_stretches


class JournalGone(StorageError):
    """The open file no longer has its name: it was removed, renamed or replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsynced:
    """The records up to `position` that may not be forced to the disk yet.

    `current` is the open segment, `is_changed` whether it was written to since its last fsync.
    `renewed`: it has copies of the ends of earlier segments, which are cut off after the fsync.
    """

    position: Position
    current: int
    is_changed: bool
    sealed: deque[tuple[int, int]]
    directory: Path
    renewed: Takeover | None = None

    def force(self) -> Position:
        """Force the records to the disk. Blocks: call it in a thread.

        After an OSError the records must be written again (`Journal.write_again`), except after
        NoAnswer, because another file would get no answer either. Raises JournalGone.
        """
        has_sealed = bool(self.sealed)
        while self.sealed:
            number, descriptor = self.sealed[0]
            fsync_file(descriptor)
            _check_there(self.directory / segment_name(number), descriptor)
            self.sealed.popleft()  # first: also a close that fails has closed it
            os.close(descriptor)
        if has_sealed or self.renewed:
            fsync_dir(self.directory)
        if self.is_changed:
            fdatasync_file(self.current)
        _check_there(self.directory / segment_name(self.position.segment), self.current)
        if self.renewed:
            _cut_off(self.directory, self.renewed)
        return self.position


def _check_there(path: Path, descriptor: int) -> None:
    """Raise JournalGone if `path` is another file, or does not exist."""
    held = os.fstat(descriptor)
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        cause = "it was removed or renamed while the run wrote to it"
    else:
        if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
            return
        cause = "another file replaced it while the run wrote to it"
    raise JournalGone(
        "keep the journal",
        str(path),
        cause,
        "Rows reported since then are lost with it. Put the folder back and restore, or start "
        "again under another name=...",
    )


def _cut_off(directory: Path, renewed: Takeover) -> None:
    """Cut off the originals of the records that the new segment has copies of.

    Readers skip them anyway, so errors are ignored.
    """
    for piece in renewed.pieces:
        with suppress(OSError):
            os.truncate(directory / segment_name(piece.segment), piece.offset)
            fsync_path(directory / segment_name(piece.segment))


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

# The size at which the next segment begins: the most that a publication uploads again. A million
# rows make a handful of files.
SEGMENT_BYTES = 1 << 24
# The limit of records in memory that wait for an fsync, if the disk does not answer.
_LARGEST_UNFORCED = 1 << 28
_FREE_SPACE = "No acknowledged record is lost. Free some disk space"


class JournalFull(StorageError):
    """The journal accepts no more records: the disk is full, or gone."""

    remedy = Remedy.RESUME


class Journal:
    """The only writer of an experiment's journal. The caller holds the experiment's lock."""

    def __init__(
        self,
        directory: Path,
        *,
        fresh: bool = False,
        begins: int = 0,
        read_until: Position | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Open for appending, and cut off incomplete records (see `cuts`).

        `fresh`: begin a new segment even if the last one is intact. Segments before `begins`
        belong to earlier experiments, so damage there does not affect this one. `read_until`: up
        to where the holder of the lock has read from `begins`; None to read that here.
        """
        self.directory = directory
        self.cuts: list[DamagedTail] = []
        self._segment_bytes = segment_bytes
        make_folder(directory)
        join_stretches(directory)
        self._unsynced = False
        self._sealed: deque[tuple[int, int]] = deque()
        # The records in memory, and the end of them that grows until the next fsync or segment.
        self._unforced: deque[tuple[Position, bytearray]] = deque()
        self._growing: bytearray | None = None
        self._unforced_bytes = 0
        # Records before this position are no longer in memory, even if they were not forced.
        self._forgotten = START
        self._renewed: Takeover | None = None
        self._number, self._fd, self._size = -1, -1, 0
        known = segments(directory)
        for number in known:
            if number < begins:
                self.cuts += seal(directory, [number])[1]
        ours = [number for number in known if number >= begins]
        sound, cuts = seal(directory, ours, read_until)
        self.cuts += cuts
        # Their writer may have been killed before it forced them to the disk.
        for number in sound:
            fsync_path(directory / segment_name(number))
        fsync_dir(directory)
        if sound and not fresh:
            self._open(sound[-1])
        else:
            self._create((known[-1] + 1) if known else 0)
            fsync_file(self._fd)
            fsync_dir(self.directory)
        close_in_children(self)

    @property
    def position(self) -> Position:
        """The position after the last record."""
        return Position(self._number, self._size)

    def append(self, payloads: Iterable[bytes]) -> None:
        """Write all payloads to the kernel with one call.

        Raises JournalFull if the disk accepts no more; then the journal has none of them.
        """
        if self._size >= self._segment_bytes:
            with suppress(JournalFull):  # the current segment still accepts records
                self.rotate()
        crc32, pack = zlib.crc32, HEADER.pack
        data = b"".join([pack(len(p), crc32(p)) + p for p in payloads])
        try:
            written, size = os.write(self._fd, data), len(data)
            while written < size:
                written += os.write(self._fd, data[written:])
        except OSError as error:
            with suppress(OSError):  # the next opening cuts off an incomplete record
                os.ftruncate(self._fd, self._size)
            raise JournalFull(
                "append to the journal",
                str(self.directory / segment_name(self._number)),
                error.strerror or str(error),
                _FREE_SPACE,
            ) from error
        if self._growing is None:
            self._growing = bytearray()
            self._unforced.append((self.position, self._growing))
        self._growing += data
        self._unforced_bytes += size
        self._size += size
        self._unsynced = True
        if self._unforced_bytes > _LARGEST_UNFORCED:
            self._unforced.clear()
            self._growing = None
            self._unforced_bytes, self._forgotten = 0, self.position

    def unsynced(self) -> Unsynced:
        """The records to force to the disk. The writer calls this; any thread may then call
        `Unsynced.force`.

        If that thread looked up the descriptor itself, it might get the next segment's.
        """
        sealed, self._sealed = self._sealed, deque()
        renewed, self._renewed = self._renewed, None
        is_changed, self._unsynced = self._unsynced, False
        self._growing = None
        return Unsynced(
            position=self.position,
            current=self._fd,
            is_changed=is_changed,
            sealed=sealed,
            directory=self.directory,
            renewed=renewed,
        )

    def forced(self, position: Position) -> None:
        """Drop the records before `position`, which were forced to the disk, from memory."""
        while self._unforced and self._unforced[0][0] < position:
            self._unforced_bytes -= len(self._unforced.popleft()[1])
        if position >= self._forgotten:
            self._forgotten = START

    def write_again(self, failed: Unsynced) -> None:
        """Begin a segment with copies of all records that were not forced to the disk.

        After a failed fsync the kernel may have dropped pages that it could not write, and the
        next fsync does not report that. The new segment is renamed into place when its copies are
        written, so no death of a process loses them; the next `sync` forces them to the disk.
        Raises OSError, or JournalFull if the records are no longer in memory.
        """
        if self._forgotten != START:
            raise JournalFull(
                "keep the journal",
                str(self.directory),
                f"more than {_LARGEST_UNFORCED >> 20} MiB waited for an fsync",
                "No acknowledged record is lost. Wait until the disk answers again",
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
        self._growing = None
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
        """Write a segment under a temporary name and rename it; return its descriptor."""
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
        """Force everything that was appended to the disk. Blocks.

        Raises OSError if the disk failed twice or does not answer, or JournalGone.
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
        """Seal the segment, begin the next one, and return the number of the sealed one.

        A segment without records is not sealed; then the number is that of the previous one. Does
        not wait for the disk: the next `sync` forces the sealed segment to it. Raises JournalFull
        if there is no space for another segment; then this one is not sealed.
        """
        number, sealed = self._number, self._fd
        if self._size == len(MAGIC):
            return number - 1
        try:
            self._create(number + 1)
        except OSError as error:
            path = self.directory / segment_name(number + 1)
            self._return_to(path, number, sealed)
            raise JournalFull(
                "begin a segment of the journal",
                str(path),
                error.strerror or str(error),
                _FREE_SPACE,
            ) from error
        self._sealed.append((number, sealed))
        self._unsynced = True
        return number

    def _return_to(self, path: Path, number: int, fd: int) -> None:
        """Continue in segment `number` with the descriptor `fd`, because creating the next segment
        failed."""
        if self._fd != fd:
            os.close(self._fd)
            path.unlink(missing_ok=True)
        self._number, self._fd = number, fd
        self._size = os.fstat(fd).st_size

    def close(self) -> None:
        """Sync and close. Raises OSError or JournalGone, like `sync`; closes in any case."""
        try:
            self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without a sync, because the records could not be forced to the disk."""
        descriptors = [*(descriptor for _, descriptor in self._sealed), self._fd]
        self._sealed.clear()
        self._fd = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def close_in_child(self) -> None:
        """Close in a forked child, which must not write."""
        self.abandon()

    def _open(self, number: int) -> None:
        self._number, self._growing = number, None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.directory / segment_name(number), flags, 0o644)
        self._size = os.fstat(self._fd).st_size

    def _create(self, number: int) -> None:
        self._open(number)
        os.write(self._fd, MAGIC)
        self._size = len(MAGIC)


def _moved(
    unforced: Iterable[tuple[Position, bytearray]], start: Position
) -> Iterator[tuple[Position, bytearray]]:
    """The same records with their new positions."""
    offset = start.offset
    for _, data in unforced:
        yield Position(start.segment, offset), data
        offset += len(data)
