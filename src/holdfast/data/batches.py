"""Prepares rows for the loop: pieces of chunks, cut into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, TypeVar

from holdfast.data.columns import array_of, view_of
from holdfast.data.dealing import Ranges
from holdfast.data.order import Order
from holdfast.data.sources import Source
from holdfast.dataclass import dataclass

T = TypeVar("T")

_END = object()


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The rows of one read, and their columns as arrays of the same memory, created once."""

    table: Any
    views: dict[str, Any] = field(default_factory=dict)

    def view(self, name: str) -> Any:
        if name not in self.views:
            self.views[name] = view_of(self.table.column(name))
        return self.views[name]


@dataclass(frozen=True, slots=True, eq=False)
class RowPiece:
    """Rows of a chunk: from `start` to `stop`, or with `order` the rows that it lists."""

    chunk: Chunk
    order: Any
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def cut(self, start: int, stop: int) -> RowPiece:
        return RowPiece(self.chunk, self.order, self.start + start, self.start + stop)

    def table(self) -> Any:
        if self.order is None:
            return self.chunk.table.slice(self.start, len(self))
        return self.chunk.table.take(self.order[self.start : self.stop])

    def array(self, name: str) -> Any:
        view = self.chunk.view(name)
        if view is None:
            column = self.chunk.table.column(name)
            if self.order is None:
                return array_of(column.slice(self.start, len(self)))
            return array_of(_chunked(column.take(self.order[self.start : self.stop])))
        if self.order is None:
            return view[self.start : self.stop]
        return view.take(self.order[self.start : self.stop], axis=0)


Rows = Sequence[RowPiece]


def count_of(rows: Rows) -> int:
    return sum(map(len, rows))


def pieces(source: Source, order: Order, ranges: Ranges) -> Iterator[RowPiece]:
    """The rows at these places of an epoch's order. One read stays in memory until the next."""
    read: tuple[int, Chunk, Any] = (-1, Chunk(None), None)
    for start, stop in ranges:
        while start < stop:
            first, last = order.stretch(start)
            if read[0] != first:
                read = (first, *_read(source, order, first, last))
            until = min(stop, last)
            yield RowPiece(read[1], read[2], start - first, until - first)
            start = until


def _read(source: Source, order: Order, first: int, last: int) -> tuple[Chunk, Any]:
    import pyarrow as pa

    tables = [source.read(*part) for part in order.parts(first, last)]
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    # One piece of memory for each column, so that views need no copy.
    return Chunk(table.combine_chunks()), order.rows(first, last)


def batched(found: Iterable[RowPiece], size: int | None, *, drop_last: bool) -> Iterator[Rows]:
    """Batches of `size` rows, the last one smaller; with None, one batch per read."""
    held: list[RowPiece] = []
    missing = size or 0
    for piece in found:
        if size is None:
            yield (piece,)
            continue
        at = 0
        while at < len(piece):
            taken = min(missing, len(piece) - at)
            held.append(piece.cut(at, at + taken))
            at, missing = at + taken, missing - taken
            if not missing:
                yield held
                held, missing = [], size
    if held and not drop_last:
        yield held


def arrays(rows: Rows, names: Sequence[str]) -> dict[str, Any]:
    """The arrays by column. For one piece without an order they are read-only views."""
    import numpy as np

    if len(rows) == 1:
        return {name: rows[0].array(name) for name in names}
    return {name: np.concatenate([piece.array(name) for piece in rows]) for name in names}


def as_table(rows: Rows) -> Any:
    import pyarrow as pa

    return pa.concat_tables([piece.table() for piece in rows])


def ahead(found: Iterable[T], count: int) -> Iterator[T]:
    """The same items; a thread makes up to `count` of them in advance."""
    if not count:
        yield from found
        return
    rest = iter(found)
    pool = ThreadPoolExecutor(1, thread_name_prefix="holdfast-data")
    try:
        waiting: deque[Any] = deque(pool.submit(next, rest, _END) for _ in range(count))
        while (one := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, rest, _END))
            yield one
    finally:
        pool.shutdown(cancel_futures=True)


def _chunked(column: Any) -> Any:
    import pyarrow as pa

    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
