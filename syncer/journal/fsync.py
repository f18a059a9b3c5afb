"""Forces the journal to the disk, and checks that its file still has its name."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import fdatasync_file, fsync_dir, fsync_file, fsync_path
from holdfast.syncer.journal.segment import Position, Takeover, segment_name


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
