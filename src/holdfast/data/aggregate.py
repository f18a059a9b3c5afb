"""Aggregates of columns, of all rows or by groups: computed by Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from holdfast.data.columns import plain
from holdfast.data.errors import unknown_column
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig


class AggregateFn:
    """Base class of the aggregates. `on` names a column. With `ignore_nulls`, empty values are
    left out; otherwise one makes the result empty. `alias_name` is the name of the result."""

    __slots__ = ()
    on: str | None
    ignore_nulls: bool
    alias_name: str | None
    function: ClassVar[str]

    @property
    def name(self) -> str:
        """The name of the column with the result."""
        return self.alias_name or f"{type(self).__name__.lower()}({self.on or ''})"

    def options(self) -> Any:
        """The options of the function of Arrow."""
        import pyarrow.compute as pc

        return pc.ScalarAggregateOptions(skip_nulls=self.ignore_nulls)

    @property
    def arrow(self) -> str:
        """The function of Arrow."""
        return self.function


@dataclass(frozen=True, slots=True)
class _OfColumn(AggregateFn):
    on: str | None = None
    ignore_nulls: bool = True
    alias_name: str | None = None


class Sum(_OfColumn):
    """The sum."""

    __slots__ = ()
    function = "sum"


class Min(_OfColumn):
    """The least value."""

    __slots__ = ()
    function = "min"


class Max(_OfColumn):
    """The greatest value."""

    __slots__ = ()
    function = "max"


class Mean(_OfColumn):
    """The mean."""

    __slots__ = ()
    function = "mean"


@dataclass(frozen=True, slots=True)
class Std(AggregateFn):
    """The standard deviation, divided by the number of rows minus `ddof`. Empty for fewer rows."""

    on: str | None = None
    ddof: int = 1
    ignore_nulls: bool = True
    alias_name: str | None = None

    function: ClassVar[str] = "stddev"

    def options(self) -> Any:
        """The options of the function of Arrow."""
        import pyarrow.compute as pc

        return pc.VarianceOptions(ddof=self.ddof, skip_nulls=self.ignore_nulls)


@dataclass(frozen=True, slots=True)
class Count(AggregateFn):
    """The number of rows; with `on` and `ignore_nulls` of those with a value."""

    on: str | None = None
    ignore_nulls: bool = False
    alias_name: str | None = None

    function: ClassVar[str] = "count"

    def options(self) -> Any:
        """The options of the function of Arrow."""
        import pyarrow.compute as pc

        if self.on is None:
            return None
        return pc.CountOptions(mode="only_valid" if self.ignore_nulls else "all")

    @property
    def arrow(self) -> str:
        """The function of Arrow."""
        return "count" if self.on is not None else "count_all"


def aggregated(
    tables: Iterator[Any], schema: Any, keys: Sequence[str], aggregates: Sequence[AggregateFn]
) -> Any:
    """One row for each group, sorted by the keys; without keys, one row.

    The columns that are used are in memory: InMemoryDataset collects the batches of a reader.

    Raises InvalidConfig.
    """
    import pyarrow as pa
    import pyarrow.acero as acero
    import pyarrow.dataset as ds

    for one in aggregates:
        if not isinstance(one, AggregateFn):
            raise InvalidConfig(
                f"aggregate({one!r:.100}): pass Sum, Min, Max, Mean, Std or Count of "
                f"holdfast.data.aggregate"
            )
        if one.on is not None and one.on not in schema.names:
            raise unknown_column(one.on, schema.names, one.name)
    used = dict.fromkeys([*keys, *(one.on for one in aggregates if one.on is not None)])
    # Without a column, Arrow would have no rows to count.
    names = list(used) or schema.names[:1]
    of_used = _plain_schema(schema, names)

    def batches() -> Iterator[Any]:
        for table in tables:
            columns = [plain(table.column(name)) for name in names]
            yield from pa.table(columns, names=names).cast(of_used).to_batches()

    reader = pa.RecordBatchReader.from_batches(of_used, batches())
    prefix = "hash_" if keys else ""
    options = acero.AggregateNodeOptions(
        [(one.on or [], prefix + one.arrow, one.options(), one.name) for one in aggregates],
        keys=list(keys) or None,
    )
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("scan", acero.ScanNodeOptions(ds.InMemoryDataset(reader, of_used))),
            acero.Declaration("aggregate", options),
        ]
    )
    try:
        found = plan.to_table(use_threads=False)
    except pa.ArrowException as error:
        shown = ", ".join(one.name for one in aggregates)
        raise InvalidConfig(f"{shown} cannot be computed: {error}") from error
    return found.sort_by([(key, "ascending") for key in keys]) if keys else found


def _plain_schema(schema: Any, names: Sequence[str]) -> Any:
    import pyarrow as pa

    kinds = [schema.field(name).type for name in names]
    plains = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    return pa.schema(list(zip(names, plains, strict=True)))


def numbers_of(schema: Any, but: Sequence[str] = ()) -> list[str]:
    """The columns of numbers."""
    import pyarrow as pa

    def is_number(kind: Any) -> bool:
        is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return bool(is_plain or pa.types.is_decimal(kind) or pa.types.is_boolean(kind))

    return [field.name for field in schema if is_number(field.type) and field.name not in but]


__all__ = ["AggregateFn", "Count", "Max", "Mean", "Min", "Std", "Sum"]
