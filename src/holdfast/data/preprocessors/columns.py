"""Columns of tables, as preprocessors read and replace them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.data.aggregate import AggregateFn, aggregated
from holdfast.data.columns import plain, replaced
from holdfast.data.errors import unknown_column
from holdfast.data.methods.whole import Whole
from holdfast.trial.errors import InvalidConfig


def column_of(table: Any, name: str, caller: str) -> Any:
    """Raises InvalidConfig for an unknown column."""
    if name not in table.column_names:
        raise unknown_column(name, table.column_names, caller)
    return plain(table.column(name))


def without_nan(column: Any) -> Any:
    """NaN as a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def numbers(table: Any, name: str, caller: str) -> Any:
    """A column as floats. Raises InvalidConfig for other values."""
    import pyarrow as pa

    column = column_of(table, name, caller)
    try:
        return column.cast(pa.float64())
    except pa.ArrowException as error:
        raise InvalidConfig(
            f"{caller}: the column {name!r} has no numbers, but {column.type}"
        ) from error


def summed_up(dataset: Whole, columns: Sequence[str], aggregates: Sequence[AggregateFn]) -> Any:
    """Aggregates of columns by name, in one pass; NaN counts as missing."""
    dataset.checked(columns, "fit()")

    def tables() -> Iterator[Any]:
        for table in dataset.tables():
            for name in columns:
                table = replaced(table, name, without_nan(plain(table.column(name))))
            yield table

    return aggregated(tables(), dataset.schema(), (), aggregates).to_pylist()[0]


def counted(
    dataset: Whole, columns: Sequence[str], caller: str, *, allow_missing: bool = False
) -> dict[str, Counter[Any]]:
    """How often each value of these columns occurs, in one pass.

    Raises InvalidConfig for missing values, and for values that are not plain.
    """
    import pyarrow.compute as pc

    dataset.checked(columns, caller)
    found: dict[str, Counter[Any]] = {name: Counter() for name in columns}
    for table in dataset.tables():
        for name in columns:
            column = without_nan(plain(table.column(name)))
            if not allow_missing and column.null_count:
                raise InvalidConfig(
                    f"{caller}: the column {name!r} has missing values: use SimpleImputer before"
                )
            try:
                counts = pc.value_counts(column.drop_null())
                found[name].update(
                    dict(zip(*(counts.field(at).to_pylist() for at in (0, 1)), strict=True))
                )
            except (TypeError, NotImplementedError) as error:
                raise InvalidConfig(
                    f"{caller}: the column {name!r} has the type {column.type}, not plain values"
                ) from error
    return found


def each(
    table: Any,
    columns: Sequence[str],
    outputs: Sequence[str],
    make: Callable[[str], Any],
) -> Any:
    """The table with a result for each column, made of the given table."""
    for output, made in [
        (output, make(name)) for name, output in zip(columns, outputs, strict=True)
    ]:
        table = replaced(table, output, made)
    return table
