"""Files that grow at their end and can be cut back: lines, a table, TensorBoard's curves.

None stays open: opening one for a batch of rows takes 10 us, and a thousand trials would need
4,000 handles. None is flushed to the disk: the journal can restore them.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import EVENTS_PREFIX, EVENTS_SUFFIX
from holdfast.experiment.projector import tensorboard
from holdfast.experiment.records.rows import flatten_row
from holdfast.experiment.records.snapshots import Written
from holdfast.syncer.files.durable import remove_file, replace_file
from holdfast.syncer.files.tree import open_regular, regular_descriptor

# This many cells of a table may be rewritten for new columns without limit (0.2 s); at most this
# many are held in memory (55 MB).
_FREE_CELLS = 200_000
_MOST_HELD_CELLS = 1_000_000
# A cell may be a list of a thousand numbers.
_LONGEST_CELL = 1 << 30

_USAGE = "usage"


class FileChanged(OSError):
    """Another process has written, cut or removed a file since the projector last wrote it."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ESTALE, "changed by another program", path)


@dataclass(frozen=True, slots=True)
class Row:
    """The values of a report, with its iteration and its time (seconds since the epoch). `usage`
    is what its attempt had used by then, if that was measured since the row before."""

    values: dict[str, Any]
    iteration: int
    at: float
    usage: Mapping[str, float] | None = None


class AppendFile:
    """A file of known size and CRC-32 that grows at its end."""

    __slots__ = ("crc32", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = self.crc32 = 0

    @property
    def written(self) -> Written:
        return Written(size=self.size, crc32=self.crc32)

    def copy(self, folder: str, known: Written) -> None:
        """Begin with the `known` bytes of the file of this name in a folder, which may be longer.
        Raises OSError; FileChanged if it does not begin with them."""
        if not known.size:
            return
        path = _moved(self.path, folder)
        with open_regular(path) as file:
            data = file.read(known.size) if known.size <= os.fstat(file.fileno()).st_size else b""
        if Written.of(data) != known:
            raise FileChanged(path)
        self.append(data)

    def append(self, data: bytes) -> None:
        """Append bytes. Raises OSError; FileChanged if the file's size is not the known one, or if
        there is one already that this has not written."""
        if not data:
            return
        flags = os.O_WRONLY | os.O_CLOEXEC
        flags |= os.O_APPEND if self.size else os.O_CREAT | os.O_EXCL
        try:
            descriptor = regular_descriptor(self.path, flags)
        except FileExistsError as error:
            raise FileChanged(self.path) from error
        try:
            if self.size and os.fstat(descriptor).st_size != self.size:
                raise FileChanged(self.path)
            self._write(descriptor, memoryview(data))
        finally:
            os.close(descriptor)
        self.size += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)

    def _write(self, descriptor: int, data: memoryview) -> None:
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            with suppress(OSError):  # after a full disk, readers must not see half a line
                os.ftruncate(descriptor, self.size)
                if not self.size:
                    os.unlink(self.path)
            raise

    def move(self, folder: str) -> None:
        """Set the folder of the file, which has been moved or will be created there."""
        self.path = _moved(self.path, folder)

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes, atomically: a reader sees the old file or the new one."""
        if size == self.size:
            return
        kept = self.head(size)
        if size:
            self._replace(kept)
        else:
            remove_file(self.path)
            self.size = self.crc32 = 0

    def _replace(self, data: bytes) -> None:
        replace_file(self.path, data)
        self.size, self.crc32 = len(data), zlib.crc32(data)

    def head(self, size: int) -> bytes:
        """The first `size` bytes. Raises FileChanged if the file is not as this has written it."""
        with open_regular(self.path) as file:
            data = file.read()
        if Written.of(data) != self.written:
            raise FileChanged(self.path)
        return data[:size]

    def check(self) -> None:
        """Raises FileChanged if the file has another size than this has written."""
        try:
            size = os.lstat(self.path).st_size
        except FileNotFoundError:
            size = 0
        if size != self.size:
            raise FileChanged(self.path)


class ProgressTable(AppendFile):
    """progress.csv: a metric that appears late adds a column, and no row loses one.

    A new column rewrites the whole file. With ever more columns that would take quadratic time
    (100 rows of 10,000 metrics: 10 s), so rows are then held back until the file has about
    doubled. `finish` writes the held rows.
    """

    __slots__ = (
        "_cells_held",
        "_cells_taken",
        "_held",
        "_width",
        "columns",
        "rewritten",
        "rows",
    )

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.columns: dict[str, None] = {}
        self.rows = 0
        self.rewritten = 0
        self._width = 0
        self._held: list[Mapping[str, Any]] = []
        self._cells_held = self._cells_taken = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in map(flatten_row, rows):
            if not row.keys() <= self.columns.keys():
                self.columns.update(dict.fromkeys(row))
            self._held.append(row)
            self._cells_held += len(row)
        self.rows += len(rows)
        if not self._is_narrow or self._may_widen:
            self.finish()

    @property
    def _is_narrow(self) -> bool:
        return 0 < self._width < len(self.columns)

    @property
    def _may_widen(self) -> bool:
        """True while the total of rewritten cells is in proportion to the cells of the table."""
        taken = self._cells_taken + self._cells_held
        cells = (self.rows - len(self._held)) * self._width
        is_cheap = self.rewritten + cells <= _FREE_CELLS + 2 * taken
        return is_cheap or self._cells_held >= _MOST_HELD_CELLS

    @property
    def is_complete(self) -> bool:
        """True if no row is held back."""
        return not self._held

    def copy_rows(self, folder: str, known: Written, rows: int) -> None:
        """Begin with these rows, as `copy` does."""
        self.copy(folder, known)
        if self.size:
            csv.field_size_limit(_LONGEST_CELL)
            with open(self.path, encoding="utf-8", newline="") as file:
                self.columns.update(dict.fromkeys(next(csv.reader(file))))
        self.rows, self._width = rows, len(self.columns)

    def finish(self) -> None:
        """Write the rows that are held back."""
        rows, self._held = self._held, []
        if not rows:
            return
        if self._is_narrow:
            self._rewrite(self.rows - len(rows))
        text = io.StringIO()
        writer = csv.writer(text)
        if not self._width:
            writer.writerow(self.columns)
        self._width = len(self.columns)
        names = [*self.columns]
        writer.writerows(
            # Nearly always the same keys in the same order, so that cells need no look-up.
            [*row.values()] if [*row] == names else [row.get(name) for name in names]
            for row in rows
        )
        self.append(text.getvalue().encode())
        self._cells_taken, self._cells_held = self._cells_taken + self._cells_held, 0

    def keep(self, rows: int) -> None:
        """Keep the first `rows` rows."""
        self.finish()
        if not rows:
            self.cut(0)
            self.columns.clear()
            self._width = 0
        elif rows != self.rows:
            self._rewrite(rows)
        self.rows = rows

    def _rewrite(self, rows: int) -> None:
        csv.field_size_limit(_LONGEST_CELL)
        reader = csv.reader(io.StringIO(self.head(self.size).decode(), newline=""))
        narrow = len(next(reader))
        padding = [""] * (len(self.columns) - narrow)
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows([*row, *padding] for row in islice(reader, rows))
        self._width = len(self.columns)
        self.rewritten += rows * self._width
        self._replace(text.getvalue().encode())


class EventCurves(AppendFile):
    """The event file of TensorBoard, created with the first row."""

    __slots__ = ("_folder", "emptied_at", "named_at")

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._folder = folder
        # The numbers in the names of the file and of the one that `restart` has emptied.
        self.named_at = self.emptied_at = 0

    def add(self, config: Mapping[str, Any], rows: Sequence[Row], ending: bytes = b"") -> None:
        parts = [tensorboard.scalars(_charted(row), row.iteration, row.at) for row in rows]
        parts.append(ending)
        if not self.size and rows:
            began = rows[0].at
            self.path = self._named(began)
            parts = [tensorboard.opening(began), tensorboard.session_start(config, began), *parts]
        self.append(b"".join(parts))

    def move(self, folder: str) -> None:
        super().move(folder)
        self._folder = folder

    def copy_named(self, folder: str, known: Written, named_at: int, emptied_at: int) -> None:
        """Begin with the event file of this number, as `copy` does."""
        self.named_at, self.emptied_at = named_at, emptied_at
        self.path = self._path(named_at)
        self.copy(folder, known)
        if emptied_at:
            replace_file(self._path(emptied_at), b"")

    def adopt(self, folder: str, step: int) -> None:
        """Copy the newest event file in `folder` up to this step."""
        for name in sorted(os.listdir(folder), reverse=True):
            number = name.removeprefix(EVENTS_PREFIX).removesuffix(EVENTS_SUFFIX)
            if EVENTS_PREFIX + number + EVENTS_SUFFIX != name or not number.isdigit():
                continue
            with open_regular(f"{folder}/{name}") as file:
                data = file.read()
            try:
                kept = data[: tensorboard.end_of_step(data, step)]
            except ValueError:  # damaged: later rows are charted nevertheless
                continue
            if kept:
                self.named_at = int(number)
                self.path = f"{self._folder}/{name}"
                self.append(kept)
                return

    def restart(self, size: int, now: float) -> None:
        """Keep `size` bytes under a newer name, because a running TensorBoard reads files in turn.

        The old file becomes empty and is removed at the next restart. If it were removed now, a
        running TensorBoard would not find its current file and would not look for a newer one.
        """
        if size == self.size:
            return
        kept, old, old_at = self.head(size), self.path, self.named_at
        if self.emptied_at:
            remove_file(self._path(self.emptied_at))
        self.size = self.crc32 = 0
        if size:
            self.path = self._named(now)
            self._replace(kept)
        os.truncate(old, 0)
        self.emptied_at = old_at

    def _named(self, now: float) -> str:
        self.named_at = max(int(now), self.named_at + 1)
        return self._path(self.named_at)

    def _path(self, at: int) -> str:
        # No host in the name: rewritten on another machine, the file replaces the one in storage.
        return f"{self._folder}/{EVENTS_PREFIX}{at}{EVENTS_SUFFIX}"


def _charted(row: Row) -> Mapping[str, Any]:
    """The row, with `usage/cpu_s` and others; a metric of the user's of this name comes first."""
    return {_USAGE: row.usage, **row.values} if row.usage else row.values


def _moved(path: str, folder: str) -> str:
    return f"{folder}/{os.path.basename(path)}"
