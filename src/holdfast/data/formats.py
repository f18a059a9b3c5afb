"""Formats of batches: arrays, a DataFrame, an Arrow table; and functions on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from holdfast.data.batches import Rows, arrays, as_table, count_of
from holdfast.data.columns import ARRAYS, array_of, even, frame_table, table_of
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

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
    batch_size: int | None
    batch_format: str
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
