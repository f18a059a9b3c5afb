"""The source of a dataset's rows: what each kind can do, and a table in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

# A shuffle of files uses windows of at least this many rows.
_LEAST_WINDOW = 1 << 16


class Source(Protocol):
    """Rows in blocks that are read one by one. Picklable."""

    @property
    def schema(self) -> Any:
        """A pyarrow.Schema."""

    @property
    def sizes(self) -> Sequence[int]:
        """The number of rows of each block."""

    @property
    def window(self) -> int:
        """The size of the windows of a full shuffle."""

    @property
    def is_slow(self) -> bool:
        """Whether reading a block is so slow that the next one should be read ahead."""

    def read(self, block: int, start: int, stop: int) -> Any:
        """These rows of a block, as a table. Raises DatasetGone."""

    def part(self, start: int, stop: int) -> Source:
        """These rows, counted over all blocks."""

    def check(self) -> None:
        """Raises DatasetGone if it is already known that something cannot be read."""


class TableSource:
    """A table in memory, of one block."""

    is_slow = False

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def schema(self) -> Any:
        return self._table.schema

    @property
    def sizes(self) -> Sequence[int]:
        return (int(self._table.num_rows),)

    @property
    def window(self) -> int:
        return max(self.sizes[0], 1)

    def read(self, block: int, start: int, stop: int) -> Any:
        return self._table.slice(start, stop - start)

    def part(self, start: int, stop: int) -> TableSource:
        return TableSource(self._table.slice(start, stop - start))

    def check(self) -> None:
        """Does nothing: rows in memory can always be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only these rows; Arrow's own pickle has the whole table."""
        table = self._table
        few = 2 * table.nbytes < table.get_total_buffer_size()
        return TableSource, (_copied(table) if few else table,)


def _copied(table: Any) -> Any:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def window_of_files(sizes: Sequence[int]) -> int:
    """The window for files: at least one of their blocks, which is in memory anyway."""
    return max(_LEAST_WINDOW, *sizes, 1)
