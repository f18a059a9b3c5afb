"""Rows: where they come from, the pieces that are read, batches, their formats and functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import Any, Final, Protocol, TypeVar

from holdfast.data.order import Order, Ranges
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig, TuneError


class DatasetGone(TuneError, FileNotFoundError):
    """A file of a dataset is missing or was replaced; the message names it."""


def unknown_column(column: str, columns: Iterable[str], caller: str) -> InvalidConfig:
    return InvalidConfig(
        f"{caller} names the column {column!r}, but the dataset has {', '.join(columns) or 'none'}"
    )


def check_batch_size(
    batch_size: object, *, or_none: bool = False, name: str = "batch_size"
) -> None:
    """Raises InvalidConfig for an invalid number of rows."""
    if batch_size is None and or_none:
        return
    if type(batch_size) is not int or batch_size < 1:
        more = ", or None for whole blocks" if or_none else ""
        raise InvalidConfig(f"{name}={batch_size!r} must be a whole number from 1 on{more}")


def check_seed(seed: int | None) -> int:
    """The seed; 0 for None. Raises InvalidConfig."""
    if seed is not None and (type(seed) is not int or seed < 0):
        raise InvalidConfig(f"seed={seed!r} must be a whole number from 0 on, or None")
    return seed or 0


# Says of a column of lists that its rows were arrays, of unequal shapes.
ARRAYS: Final = {"holdfast": "arrays"}


def view_of(column: Any) -> Any:
    """A ChunkedArray of one chunk as a read-only array of the same memory.

    None if it has missing values, or types that NumPy only has as objects. Booleans, which Arrow
    packs into bits, are unpacked.
    """
    import pyarrow as pa

    if column.null_count or column.num_chunks != 1:
        return None
    chunk, kind = column.chunk(0), column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return None if chunk.storage.flatten().null_count else chunk.to_numpy_ndarray()
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        flat = chunk.flatten()
        return None if flat.null_count else flat.to_numpy().reshape(len(chunk), kind.list_size)
    if pa.types.is_boolean(kind):
        return chunk.to_numpy(zero_copy_only=False)
    return chunk.to_numpy() if _is_number(kind) or pa.types.is_timestamp(kind) else None


def array_of(column: Any) -> Any:
    """Any ChunkedArray as an array: of numbers if it holds numbers, with NaN for missing values.

    Tensors have their shape, texts and lists of varying lengths are objects.
    """
    import numpy as np
    import pyarrow as pa

    if column.num_chunks == 1:
        found = view_of(column)
        if found is not None:
            return found
    if isinstance(column.type, (pa.FixedShapeTensorType, pa.FixedSizeListType)):
        views = [view_of(pa.chunked_array([chunk])) for chunk in column.chunks]
        if views and all(view is not None for view in views):
            return np.concatenate(views)
    if is_list(column.type) and is_list(column.type.value_type):
        return stacked([even(value) for value in column.to_pylist()])
    return column.to_numpy(zero_copy_only=False)


def is_list(kind: Any) -> bool:
    import pyarrow as pa

    return any(is_one(kind) for is_one in (pa.types.is_list, pa.types.is_large_list))


def even(values: Any) -> Any:
    """An array of the values, or one of objects if they have unequal lengths."""
    import numpy as np

    try:
        return np.asarray(values)
    except ValueError:
        return stacked([even(value) for value in values])


def stacked(arrays: list[Any]) -> Any:
    """Arrays of one shape and type as one array, and others as an array of objects."""
    import numpy as np

    if len({(array.shape, array.dtype) for array in arrays}) == 1:
        return np.stack(arrays)
    found = np.empty(len(arrays), dtype=object)
    for at, array in enumerate(arrays):
        found[at] = array
    return found


def plain(column: Any) -> Any:
    """The values of a column of categories; any other column unchanged."""
    import pyarrow as pa

    is_category = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_category else column


def replaced(table: Any, name: str, column: Any) -> Any:
    """The table with this column, in its place if there is one of the name."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def table_of(columns: Mapping[str, Any]) -> Any:
    """A table of columns that are arrays or lists; arrays of more axes become tensors.

    Raises InvalidConfig for columns of different lengths or of types that Arrow does not know.
    """
    import pyarrow as pa

    made = {str(name): _arrow(str(name), values) for name, values in columns.items()}
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in lengths.items())
        raise InvalidConfig(f"the columns of a dataset must have the same length, not {listed}")
    fields = [
        pa.field(name, column.type, metadata=ARRAYS if _are_arrays(values) else None)
        for (name, column), values in zip(made.items(), columns.values(), strict=True)
    ]
    return pa.table(list(made.values()), schema=pa.schema(fields))


def frame_table(frame: Any) -> Any:
    """The table of a DataFrame. Columns whose cells are arrays are those of `table_of`."""
    import pyarrow as pa

    names = frame.columns if frame.columns.is_unique else ()
    own = {name: list(frame[name]) for name in names if _are_arrays(frame[name])}
    table = pa.Table.from_pandas(frame.drop(columns=list(own)), preserve_index=False)
    if not own:
        return table
    made = table_of(own)
    found = {str(name): made if name in own else table for name in names}
    return pa.table(
        [each.column(name) for name, each in found.items()],
        schema=pa.schema([each.field(name) for name, each in found.items()]),
    )


def _are_arrays(values: Any) -> bool:
    """True for a column of objects, each of which is an array."""
    is_column = isinstance(values, (list, tuple)) or str(getattr(values, "dtype", "")) == "object"
    return is_column and len(values) > 0 and all(getattr(one, "ndim", 0) for one in values)


def _arrow(name: str, values: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    is_array = isinstance(values, np.ndarray) and values.dtype != object
    items = values if is_array else _stacked(list(values))
    try:
        if isinstance(items, np.ndarray) and items.ndim > 1:
            return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(items))
        return pa.array(items)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidConfig(f"a dataset cannot have the column {name!r}: {error}") from error


def _stacked(items: list[Any]) -> Any:
    """One array from arrays of one shape; any other list unchanged."""
    import numpy as np

    if not items or not all(hasattr(item, "__array__") for item in items):
        return items
    arrays = [np.asarray(item) for item in items]
    kinds = {(array.shape, array.dtype) for array in arrays}
    return np.stack(arrays) if len(kinds) == 1 else [array.tolist() for array in arrays]


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


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
        """True if reading a block takes so long that the next one should be read ahead."""

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


NUMPY, PANDAS, PYARROW = "numpy", "pandas", "pyarrow"
_MARK: Final = {key.encode(): value.encode() for key, value in ARRAYS.items()}
_NAMES: Final = {"numpy": NUMPY, "default": NUMPY, "pandas": PANDAS, "pyarrow": PYARROW}


def format_of(batch_format: str | None) -> str:
    """The name of a format. Raises InvalidConfig for an unknown one."""
    found = _NAMES.get(batch_format or "default")
    if found is None:
        raise InvalidConfig(
            f"batch_format={batch_format!r} must be one of 'numpy', 'pandas' and 'pyarrow'"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A function of each batch. One that `is_free` may return another number of rows."""

    function: Callable[..., Any]
    batch_format: str
    batch_size: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    is_free: bool = False

    def __call__(self, batch: Any) -> Any:
        """Raises InvalidConfig for a result that is no batch."""

        most = self.batch_size
        if most is None or rows_of(batch) <= most:
            return self._once(batch)
        table = as_arrow(batch)
        parts = (table.slice(at, most) for at in range(0, table.num_rows, most))
        return concatenated([as_arrow(self._once(part)) for part in parts])

    def _once(self, batch: Any) -> Any:
        given = formatted(batch, self.batch_format)
        made = self.function(given, *self.positional, **self.arguments)
        name = name_of(self.function)
        if isinstance(made, Iterator):
            made = concatenated([as_arrow(part) for part in made])
        if not isinstance(made, Mapping) and not _is_table(made):
            raise InvalidConfig(
                f"map_batches({name}) returned a {type(made).__name__}: return a dict of arrays, "
                f"a DataFrame or a pyarrow.Table"
            )
        rows_of(made)
        return made


def concatenated(tables: Sequence[Any]) -> Any:
    """One table, with a type for each column that holds the values of all.

    Raises InvalidConfig if there is none.
    """
    import pyarrow as pa

    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid:
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise InvalidConfig(f"rows of different columns or types: {error}") from error


def name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def applied(maps: Sequence[Mapped], rows: Rows) -> Any:
    """The rows after all functions, applied one after the other."""
    batch: Any = rows
    for function in maps:
        batch = function(batch)
    return batch


def mapped(maps: Sequence[Mapped], rows: Rows) -> Any:
    """The rows after all functions. Raises InvalidConfig if their number has changed."""
    batch = applied(maps, rows)
    if rows_of(batch) != count_of(rows):
        names = ", ".join(name_of(one.function) for one in maps if one.is_free)
        raise InvalidConfig(
            f"map_batches({names}) returned {rows_of(batch)} rows for {count_of(rows)}, after a "
            f"row for each one at the beginning: call materialize() on its result, so that "
            f"holdfast knows how many rows there are before they are dealt"
        )
    return batch


def formatted(batch: Any, wanted: str) -> Any:
    """A batch, or rows as they were read, converted to a format."""
    if wanted == NUMPY:
        return as_arrays(batch)
    if wanted == PYARROW:
        return as_arrow(batch)
    return batch if hasattr(batch, "iloc") else _as_frame(batch)


def as_arrays(batch: Any) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return {name: even(values) for name, values in batch.items()}
    if _is_table(batch):
        table = as_arrow(batch)
        return {name: array_of(table.column(name)) for name in table.column_names}
    return arrays(batch, batch[0].chunk.table.column_names)


def rows_in(batch: Any) -> Iterator[dict[str, Any]]:
    """Each row as a dict of Python values: lists for lists, and arrays for arrays."""
    lists = _as_lists(batch)
    for row in zip(*lists.values(), strict=True):
        yield dict(zip(lists, row, strict=True))


def _as_lists(batch: Any) -> dict[str, list[Any]]:
    """The values of each column: None for missing ones, arrays for tensors."""
    import pyarrow as pa

    if isinstance(batch, Mapping):
        return {
            name: list(values) if isinstance(values, list) else _listed(even(values))
            for name, values in batch.items()
        }
    table = as_arrow(batch)
    lists = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        # As an array, a whole number would become a float, and a time a number.
        exact = column.null_count or pa.types.is_nested(kind) or pa.types.is_temporal(kind)
        is_array = isinstance(kind, pa.ExtensionType) or table.schema.field(name).metadata == _MARK
        lists[name] = _listed(array_of(column)) if is_array or not exact else column.to_pylist()
    return lists


def _listed(values: Any) -> list[Any]:
    return list(values) if values.ndim > 1 else list(values.tolist())


def as_arrow(batch: Any) -> Any:
    import pyarrow as pa

    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, Mapping):
        return table_of(batch)
    if hasattr(batch, "iloc"):
        return frame_table(batch)
    return as_table(batch)


def rows_of(batch: Any) -> int:
    """The number of rows of a batch. Raises InvalidConfig for columns of different lengths."""
    if isinstance(batch, Mapping):
        lengths = {len(values) for values in batch.values()}
        if len(lengths) > 1:
            raise InvalidConfig(f"the columns of a batch have {sorted(lengths)} rows, not one")
        return lengths.pop() if lengths else 0
    return len(batch) if _is_table(batch) else count_of(batch)


def _as_frame(batch: Any) -> Any:
    """A batch as a DataFrame. Tensors become a column of arrays.

    Categories and time zones, which no array has, become pandas' own columns.
    """
    import pandas as pd

    if isinstance(batch, Mapping):
        found = as_arrays(batch)
    else:
        schema = batch.schema if _is_table(batch) else batch[0].chunk.table.schema
        own = {field.name for field in schema if _is_pandas_own(field.type)}
        table: Any = as_arrow(batch) if own or _is_table(batch) else None
        found = {
            name: table.column(name).to_pandas() if name in own else _array(batch, table, name)
            for name in schema.names
        }
    return pd.DataFrame(
        {name: list(values) if values.ndim > 1 else values for name, values in found.items()}
    )


def _array(batch: Any, table: Any, name: str) -> Any:
    """A column of a batch as an array; a view of the rows as they were read, if possible."""
    if _is_table(batch):
        return array_of(table.column(name))
    return arrays(batch, [name])[name]


def _is_pandas_own(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_dictionary(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_table(batch: Any) -> bool:
    return hasattr(batch, "iloc") or hasattr(batch, "column_names")


_ROWS_AT_ONCE = 4096


def mapped_tables(source: Source, maps: tuple[Mapped, ...]) -> Iterator[Any]:
    """All rows in stored order, after `maps`; a block, or with `maps` 4,096 rows, at once."""
    for table in _blocks(source):
        yield from _mapped(table, maps)


def keeps_rows(source: Source, maps: tuple[Mapped, ...]) -> bool:
    """True if `maps` return a row for each row. Calls them until they do not."""
    pieces = (piece for table in _blocks(source) for piece in _pieces(table))
    return all(rows_of(applied(maps, [piece])) == len(piece) for piece in pieces)


def _blocks(source: Source) -> Iterator[Any]:
    return (source.read(block, 0, size) for block, size in enumerate(source.sizes) if size)


def _mapped(table: Any, maps: tuple[Mapped, ...]) -> Iterator[Any]:
    if not maps:
        return iter((table,))
    return (as_arrow(applied(maps, [piece])) for piece in _pieces(table))


def _pieces(table: Any) -> Iterator[RowPiece]:
    chunk = Chunk(table.combine_chunks())
    for at in range(0, table.num_rows, _ROWS_AT_ONCE):
        yield RowPiece(chunk, None, at, min(at + _ROWS_AT_ONCE, table.num_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSource:
    """Some rows of a source: for each block, the numbers of its rows, in order."""

    source: Source
    chosen: tuple[Any, ...]

    @property
    def schema(self) -> Any:
        return self.source.schema

    @property
    def is_slow(self) -> bool:
        return self.source.is_slow

    @property
    def sizes(self) -> Sequence[int]:
        return [len(rows) for rows in self.chosen]

    @property
    def window(self) -> int:
        return self.source.window

    def read(self, block: int, start: int, stop: int) -> Any:
        rows = self.chosen[block][start:stop].astype("int64")
        first, last = int(rows[0]), int(rows[-1]) + 1
        return self.source.read(block, first, last).take(rows - first)

    def part(self, start: int, stop: int) -> ChosenSource:
        found, at = [], 0
        for rows in self.chosen:
            found.append(rows[max(start - at, 0) : max(stop - at, 0)])
            at += len(rows)
        return replace(self, chosen=tuple(found))

    def check(self) -> None:
        self.source.check()


def chosen_of(source: Source, mask: Any) -> Source:
    """The rows of a source for which `mask`, an array of booleans, is true."""
    import numpy as np

    if isinstance(source, TableSource):
        return TableSource(source.read(0, 0, len(mask)).take(np.flatnonzero(mask)))
    found, at = [], 0
    for size in source.sizes:
        found.append(np.flatnonzero(mask[at : at + size]).astype(np.uint32))
        at += size
    return ChosenSource(source=source, chosen=tuple(found))
