"""Reads a trial's directory, on this machine or in storage."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.contents import check_folder
from holdfast.experiment.folder.layout import (
    CHECKPOINT_PREFIX,
    LOCK,
    RESULTS,
    Layout,
    is_checkpoint,
)
from holdfast.plain_numbers import is_number
from holdfast.schema import check_table
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import is_whole
from holdfast.syncer.errors import StorageUnavailable, redact
from holdfast.syncer.files.threads import call_and_wait
from holdfast.syncer.files.tree import (
    CLAIMS,
    MANIFEST_NAME,
    is_ours,
    open_inside,
    open_regular,
)
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import parse_table, read_small
from holdfast.syncer.uploader.lock import current_holder
from holdfast.trial.errors import TuneError
from holdfast.trial.metrics import lookup
from holdfast.trial.trial import TrialSpec

Row = dict[str, Any]

# A whole line with a number for this key. The quotes within a text are escaped, so a key with its
# quotes and colon is a key; it is of the outermost object if no other brace is before it.
_PLAIN = rb"^\{[^{}\n]*?%s: *(-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Infinity)|NaN) *[,}].*(?<=\})$"


class DamagedRows(TuneError, ValueError):
    """A trial's `result.json` has a line that is not a row; the message names file and line."""


class RowLines:
    """The complete lines of a `result.json`, oldest first; `shown` names the file in errors."""

    def __init__(self, data: bytes, shown: str) -> None:
        self._shown = shown
        whole = data if damaged_end(data) else data[: data.rfind(b"\n") + 1]  # the rest is coming
        self._data = whole
        self._lines = [line for line in whole.split(b"\n") if line]

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, at: int) -> Row:
        """The row at an index, also a negative one. Raises DamagedRows."""
        number = at + 1 + (len(self) if at < 0 else 0)
        return decode_row(self._lines[at], f"{self._shown}: line {number}")

    def rows(self) -> list[Row]:
        """All rows. Raises DamagedRows."""
        return [self.row(at) for at in range(len(self))]

    def numbers(self, metric: str) -> list[float | None]:
        """The value of `metric` (`a/b` for a nested one) in each row; None if it is not a number.

        A line is decoded only if its value is not plain to see: this takes a thirtieth of the time
        of `rows`. Raises DamagedRows for a line that it decodes.
        """
        plain = re.compile(_PLAIN % re.escape(json.dumps(metric).encode()), re.MULTILINE)
        found = plain.findall(self._data)
        if len(found) == len(self):
            return list(map(float, found))
        return [
            self._decoded(at, metric) if (seen := plain.match(line)) is None else float(seen[1])
            for at, line in enumerate(self._lines)
        ]

    def _decoded(self, at: int, metric: str) -> float | None:
        return numeric(self.row(at), metric)


def numeric(row: Mapping[str, Any], metric: str) -> float | None:
    """The value of `metric` (`a/b` for a nested one) as a number; None if there is none."""
    value = lookup(row, metric)
    return float(value) if is_number(value) else None


def decode_row(line: bytes, where: str) -> Row:
    """Raises DamagedRows."""
    try:
        row: Row = check_table(parse_table(line), "it")
    except ValueError as error:
        raise DamagedRows(
            f"{where} is not JSON ({error}). The journal has every row: restoring the experiment "
            "rewrites the file"
        ) from error
    return row


def damaged_end(data: bytes) -> bytes | None:
    """The bytes after the last complete line if they are damage: a power cut leaves zeros."""
    begun = data[data.rfind(b"\n") + 1 :]
    return begun if b"\0" in begun else None


R = TypeVar("R")

_TAIL_BYTES = 1 << 14
_CHUNK_BYTES = 4 << 20
PIECE_BYTES = 1 << 20
_DEADLINE_S = 60.0
_UNREACHABLE = "Check that the storage can be reached from this machine"
_MOST_BYTES = 1 << 33


def _asked(
    location: Location,
    operation: str,
    where: str,
    ask: Callable[[], R],
    progress: Callable[[], object] = lambda: None,
) -> R | None:
    """Call the filesystem of a location; returns None if the file or folder is missing.

    Remote calls run in a thread with a deadline: pyarrow waits a quarter of an hour for a `gs://`
    that does not answer. Raises StorageError.
    """
    if location.local_path is not None:
        return _or_none(ask, operation, where)
    try:
        return call_and_wait(lambda: _or_none(ask, operation, where), _DEADLINE_S, progress)
    except TimeoutError as error:
        cause = f"no answer within {_DEADLINE_S:g} s"
        raise StorageUnavailable(operation, where, cause, _UNREACHABLE) from error


def _or_none(ask: Callable[[], R], operation: str, where: str) -> R | None:
    try:
        return ask()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageUnavailable(operation, where, redact(str(error))) from error


def read_file(location: Location, name: str) -> bytes | None:
    """The bytes of a file in a folder of some storage; None if there is no such file.

    Raises StorageError.
    """
    data = bytearray()

    def read() -> bytes:
        filesystem, path = location.child(name).arrow()
        with filesystem.open_input_stream(path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                data.extend(chunk)
        return bytes(data)

    where = f"{location.public}: {name}"
    return _asked(location, "read", where, read, lambda: len(data))


def read_from(location: Location, name: str, offset: int, most: int) -> tuple[int, bytes] | None:
    """The size of a file in a folder of some storage, and at most `most` bytes from `offset`.

    None if there is no such file. Raises StorageError.
    """

    def read() -> tuple[int, bytes]:
        filesystem, path = location.child(name).arrow()
        with filesystem.open_input_file(path) as file:
            size: int = file.size()
            return size, file.read_at(most, offset) if size > offset else b""

    return _asked(location, "read", f"{location.public}: {name}", read)


def list_folder(location: Location) -> list[str]:
    """The names in a folder of some storage; empty if there is no such folder.

    Raises StorageError.
    """
    from pyarrow.fs import FileSelector

    def look() -> list[str]:
        filesystem, path = location.arrow()
        infos = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    return _asked(location, "list", location.public, look) or []


def has_bucket(location: Location) -> bool:
    """Whether the first part of a path exists in some storage; True without permission to ask.

    Raises StorageError if storage does not answer.
    """
    from pyarrow.fs import FileType

    def look() -> bool:
        filesystem, path = location.arrow()
        with suppress(OSError):  # credentials that may only list below it cannot ask for it
            (found,) = filesystem.get_file_info([bucket_of(path)])
            return bool(found.type != FileType.NotFound)
        return True

    return bool(_asked(location, "look for", location.public, look))


def bucket_of(path: str) -> str:
    return path.partition("/")[0]


def portable(location: Location) -> Location:
    """The location for a pickle, without a filesystem that cannot be pickled."""
    return location if location.is_picklable else location.without_credentials()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFolder:
    """A trial's directory, stored at `location`.

    `local` is a directory on this machine with the same records; None if there is none.
    """

    location: Location
    local: Path | None

    @classmethod
    def at(cls, location: Location) -> Self:
        """The directory at a location, which may be on this machine."""
        local = location.local_path
        return cls(location=location, local=None if local is None else Path(local))

    @classmethod
    def of(cls, spec: TrialSpec, location: Location, layout: Layout | None) -> Self:
        """The directory of a trial of the experiment at `location`."""
        local = None if layout is None else layout.trial(spec)
        if local is not None:
            check_folder(local)
        return cls(location=location.child(spec.dirname), local=local)

    def for_pickle(self) -> Self:
        """A copy that can be pickled."""
        return replace(self, location=portable(self.location))

    def after_unpickle(self) -> Self:
        """A copy for this machine after unpickling: the original machine's directory may be
        missing here."""
        here = self.local is not None and self.local.is_dir()
        return self if here else replace(self, local=None)

    @property
    def is_at_rest(self) -> bool:
        """Whether no run writes to it: no process holds the lock of its experiment on this
        machine.

        False if that cannot be determined.
        """
        lock = None if self.local is None else Layout(self.local.parent).lock
        return lock is not None and lock.exists() and not current_holder(lock)

    @property
    def path(self) -> str:
        """The path on the filesystem of `location`."""
        return self.location.path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """The path to show: on this machine if it exists here, otherwise without credentials."""
        return self.location.public if self.local is None else str(self.local)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is no such file. Raises StorageError, OSError."""
        if self.local is None:
            return read_file(self.location, name)
        try:
            return read_small(self.local / name, _MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self) -> list[str]:
        """The names in the folder; empty if there is no folder. Raises StorageError, OSError."""
        if self.local is None:
            return list_folder(self.location)
        return sorted(os.listdir(self.local)) if self.local.is_dir() else []

    def real(self) -> Self:
        """The same folder, whose path on this machine has no link above it."""
        if self.local is None:
            return self
        return replace(self, local=Path(os.path.realpath(self.local.parent), self.local.name))

    def opened(self, path: str) -> BinaryIO:
        """A file below this folder, which must be on this machine and `real`; no link is followed.
        Raises OSError, NotRegular."""
        assert self.local is not None
        return open_inside(self.local.parent, f"{self.local.name}/{path}")

    def piece(self, path: str, offset: int, most: int = PIECE_BYTES) -> tuple[int, bytes] | None:
        """The size of a file below this folder, which is `real`, and at most `most` of its bytes
        from `offset` on. None if there is no such file. Raises StorageError, OSError."""
        if self.local is None:
            return read_from(self.location, path, offset, most)
        try:
            with self.opened(path) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(offset, size))
                return size, file.read(most)
        except FileNotFoundError:
            return None

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """`size` bytes of a file below this folder, which is `real`. It is opened when they are
        read. Raises StorageError, and OSError if it is shorter now."""
        with nullcontext() if self.local is None else self.opened(path) as file:
            at = 0
            while at < size:
                if file is not None:
                    piece = file.read(min(PIECE_BYTES, size - at))
                else:
                    _, piece = self.piece(path, at, min(_CHUNK_BYTES, size - at)) or (0, b"")
                if not piece:
                    raise OSError(errno.ESTALE, "the file has become shorter while it was sent")
                at += len(piece)
                yield piece

    def rows(self) -> RowLines:
        """The rows of `result.json`, one per iteration. Leaves out a line that is being
        written."""
        return RowLines(self.read(RESULTS) or b"", f"{self.shown}/{RESULTS}")

    def last_row(self) -> Row | None:
        """The newest row of `result.json`; None if there is none."""
        line = _last_line(self.read(RESULTS) or b"") if self.local is None else self._tail()
        where = f"{self.shown}/{RESULTS}: the last line"
        return decode_row(line, where) if line else None

    def _tail(self) -> bytes:
        assert self.local is not None
        try:
            with open_regular(self.local / RESULTS) as file:
                return _last_line_of(file)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def exists(self) -> bool:
        if self.local is not None:
            return self.local.is_dir()
        return bool(list_folder(self.location))

    def checkpoint(self, dirname: str, *, persisted: bool = True) -> Checkpoint | None:
        """The checkpoint in the folder `dirname`.

        A checkpoint that is not `persisted` is staged, and complete, only on the machine of the
        run: None on others.
        """
        if not persisted:
            here = None if self.local is None else self.local / dirname
            return Checkpoint(str(here)) if here is not None and is_whole(here) else None
        return Checkpoint.from_location(self.location.child(dirname))

    def complete_checkpoints(self) -> list[str]:
        """The folders of the complete checkpoints, oldest first.

        A checkpoint with a manifest is complete, because the manifest is written last. On the
        machine of the run (its lock file exists there), staged ones are complete as well, because
        they are renamed into place, unless nodes have uploaded there.
        """
        if self.local is not None:
            return self._complete_here(self.local)
        listed = with_store(self.location, lambda store: store.list())
        above = [one.key.rpartition("/")[0] for one in listed if one.name == MANIFEST_NAME]
        return [name for name in above if is_checkpoint(name)]

    @staticmethod
    def _complete_here(folder: Path) -> list[str]:
        staged = (folder.parent / LOCK).exists() and not (folder.parent / CLAIMS).exists()
        found = sorted(entry.name for entry in folder.glob(f"{CHECKPOINT_PREFIX}*/"))
        names = [name for name in found if is_checkpoint(name)]
        return [
            name
            for name in names
            if (folder / name / MANIFEST_NAME).is_file() or (staged and is_ours(folder / name))
        ]


def _last_line_of(file: BinaryIO) -> bytes:
    """Read from the end: a trial's file may have a hundred thousand rows."""
    size = os.fstat(file.fileno()).st_size
    taken = min(_TAIL_BYTES, size)
    while True:
        file.seek(size - taken)
        tail = file.read(taken)
        if taken == size or tail.count(b"\n") >= 2:
            return _last_line(tail)
        taken = min(taken * 4, size)


def _last_line(data: bytes) -> bytes:
    """The last complete line; empty if there is none."""
    if (begun := damaged_end(data)) is not None:
        return begun
    return data[: data.rfind(b"\n") + 1].rstrip(b"\n").rpartition(b"\n")[2]
