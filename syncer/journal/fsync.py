"""Forcing the journal onto the disk, and proving that it is still the file under its name."""

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
    """The file that is written to is not the one under its name any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsynced:
    """What was appended up to `position` and may not be on the disk yet.

    `current` is the open segment, `is_changed` whether something was written to it since it was
    forced. `renewed` says that it takes over others, whose ends are cut off once it is durable.
    """

    position: Position
    current: int
    is_changed: bool
    sealed: deque[tuple[int, int]]
    directory: Path
    renewed: Takeover | None = None

    def force(self) -> Position:
        """Make it outlive a power cut. Blocks: call it in a thread.

        Raises OSError, after which nothing of it counts as written (`Journal.write_again`): but
        NoAnswer, where another file would get no answer either. Or JournalGone.
        """
        has_sealed = bool(self.sealed)
        while self.sealed:
            number, descriptor = self.sealed[0]
            fsync_file(descriptor)
            _check_there(self.directory / segment_name(number), descriptor)
            os.close(descriptor)
            self.sealed.popleft()
        if has_sealed or self.renewed:
            fsync_dir(self.directory)
        if self.is_changed:
            fdatasync_file(self.current)
        _check_there(self.directory / segment_name(self.position.segment), self.current)
        if self.renewed:
            _cut_off(self.directory, self.renewed)
        return self.position


def _check_there(path: Path, descriptor: int) -> None:
    """Raises JournalGone where the name is another file's, or nobody's."""
    held = os.fstat(descriptor)
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        cause = "it was removed or renamed while the run wrote to it"
    else:
        if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
            return
        cause = "another file was put in its place while the run wrote to it"
    raise JournalGone(
        "keep the journal",
        str(path),
        cause,
        "Rows that were reported since then are lost with it. Put the folder back as it was, then "
        "restore; or begin anew under another RunConfig(name=...)",
    )


def _cut_off(directory: Path, renewed: Takeover) -> None:
    """What stands in the new segment need not be read here. Whether it is there or not makes no
    difference to a reader, so that nothing follows from a failure."""
    for piece in renewed.pieces:
        with suppress(OSError):
            os.truncate(directory / segment_name(piece.segment), piece.offset)
            fsync_path(directory / segment_name(piece.segment))
