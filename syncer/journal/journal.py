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
from pathlib import Path

from holdfast.forked import close_in_children
from holdfast.syncer.errors import NoAnswer, StorageError
from holdfast.syncer.files.durable import (
    TEMPORARY,
    fsync_dir,
    fsync_file,
    fsync_path,
    make_folder,
    unique,
    write_all,
)
from holdfast.syncer.journal.cutting import DamagedTail, seal
from holdfast.syncer.journal.fsync import Unsynced
from holdfast.syncer.journal.reading import (
    LARGEST_RECORD,
    START,
    read,
    read_segment,
    readable_end,
    segments,
)
from holdfast.syncer.journal.segment import (
    HEADER,
    MAGIC,
    Position,
    RecordSpan,
    Takeover,
    segment_name,
    start_of,
)
from holdfast.syncer.journal.stretches import join_stretches

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


class JournalFull(StorageError):
    """The journal accepts no more records: the disk is full, or gone."""


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
        self._unforced: deque[tuple[Position, bytes]] = deque()
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

    def append(self, payloads: Iterable[bytes]) -> Position:
        """Write all payloads to the kernel with one call; return the position after them.

        Raises JournalFull if the disk accepts no more; then the journal has none of them.
        """
        if self._size >= self._segment_bytes:
            with suppress(JournalFull):  # the current segment still accepts records
                self.rotate()
        crc32, pack = zlib.crc32, HEADER.pack
        data = b"".join([pack(len(p), crc32(p)) + p for p in payloads])
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            with suppress(OSError):  # the next opening cuts off an incomplete record
                os.ftruncate(self._fd, self._size)
            raise JournalFull(
                "append to the journal",
                str(self.directory / segment_name(self._number)),
                error.strerror or str(error),
                "No acknowledged record is lost. Free some disk space, then resume",
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
        """The records to force to the disk. The writer calls this; any thread may then call
        `Unsynced.force`.

        If that thread looked up the descriptor itself, it might get the next segment's.
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
                "begin a segment of the journal", str(path), error.strerror or str(error)
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
        self._number = number
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.directory / segment_name(number), flags, 0o644)
        self._size = os.fstat(self._fd).st_size

    def _create(self, number: int) -> None:
        self._open(number)
        os.write(self._fd, MAGIC)
        self._size = len(MAGIC)


def _moved(
    unforced: Iterable[tuple[Position, bytes]], start: Position
) -> Iterator[tuple[Position, bytes]]:
    """The same records with their new positions."""
    offset = start.offset
    for _, data in unforced:
        yield Position(start.segment, offset), data
        offset += len(data)
