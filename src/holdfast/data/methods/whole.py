"""What a dataset is, whatever its methods do with it: a source, functions and a shuffle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

from holdfast.data.aggregate import AggregateFn, aggregated
from holdfast.data.combined import MappedSource, mapped_tables
from holdfast.data.errors import check_batch_size, unknown_column
from holdfast.data.formats import PANDAS, Mapped, concatenated, format_of, formatted, rows_in
from holdfast.data.iterating import Iterating
from holdfast.data.order import Shuffle
from holdfast.data.sources import Source, TableSource
from holdfast.plain_numbers import takes_numbers
from holdfast.trial.errors import InvalidConfig


class Whole(Iterating):
    """Rows in stored order, and methods that read them."""

    @property
    @abstractmethod
    def source(self) -> Source:
        """The rows before the functions."""

    @property
    @abstractmethod
    def shuffle(self) -> Shuffle | None:
        """How the rows are shuffled in each epoch."""

    @property
    @abstractmethod
    def maps(self) -> tuple[Mapped, ...]:
        """The functions of `map_batches`, in the order in which they are applied."""

    @abstractmethod
    def over(self, source: Source, maps: Sequence[Mapped] = ()) -> Self:
        """A dataset of another source, which is shuffled as this one is."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Self:
        """Rows `start` to `stop`, without those at `stop` and after."""

    @abstractmethod
    def exact(self, rows: int | None = None) -> Self:
        """A dataset whose functions return a row for each row of its source: this one or, if a
        function of `map_batches` does not, one of all its results in memory. With `rows` the
        functions are judged by that many rows."""

    def count(self) -> int:
        """The number of rows. Reads nothing, unless `map_batches` may have changed it."""
        return sum(self.exact().source.sizes)

    def schema(self, fetch_if_missing: bool = True) -> Any:
        """Names and types of the columns; after `map_batches` those of one mapped row."""
        if not self.maps:
            return self.source.schema
        if not sum(self.source.sizes):
            raise InvalidConfig("the result of map_batches for no rows is not known")
        return self.over_first(1).to_arrow().schema

    def columns(self, fetch_if_missing: bool = True) -> list[str]:
        """The names of the columns."""
        return list(self.schema().names)

    def checked(self, columns: Sequence[str], caller: str) -> list[str]:
        """Raises InvalidConfig for an unknown column."""
        known = self.columns()
        for column in columns:
            if column not in known:
                raise unknown_column(column, known, caller)
        return list(columns)

    def settled(self) -> Source:
        """The rows after the functions, as a source."""
        now = self.exact()
        if not now.maps:
            return now.source
        return MappedSource(source=now.source, maps=now.maps, schema=now.schema())

    def tables(self) -> Iterator[Any]:
        """All rows in stored order as pyarrow.Tables, of which one is in memory."""
        return mapped_tables(self.source, self.maps)

    def batches(self, columns: Sequence[str] | None = None) -> Any:
        """All rows in stored order, as a pyarrow.RecordBatchReader, which reads them on demand."""
        import pyarrow as pa

        schema = self.schema()
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])

        def read() -> Iterator[Any]:
            for table in self.tables():
                yield from table.select(schema.names).cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, read())

    def aggregated(self, keys: Sequence[str], aggregates: Sequence[AggregateFn]) -> Any:
        """A table with one row for each group. Raises InvalidConfig."""
        return aggregated(self.tables(), self.schema(), keys, aggregates)

    def over_table(self, table: Any) -> Self:
        """A dataset of these rows, not shuffled."""
        return self.over(TableSource(table.combine_chunks())).in_order()

    # -- its rows --

    @takes_numbers
    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows, in stored order."""
        check_batch_size(limit, name="limit")
        return list(self.over_first(limit).iter_rows())

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows. Raises InvalidConfig if there are more than `limit`."""
        if limit is not None and self.count() > limit:
            raise InvalidConfig(f"take_all(limit={limit}): the dataset has {self.count()} rows")
        return [row for table in self.tables() for row in rows_in(table)]

    @takes_numbers
    def take_batch(self, batch_size: int = 20, batch_format: str | None = "default") -> Any:
        """The first rows, in stored order, as one batch."""
        check_batch_size(batch_size)
        return formatted(self.over_first(batch_size).to_arrow(), format_of(batch_format))

    def over_first(self, limit: int) -> Self:
        """The first rows, not shuffled."""
        now = self.exact(limit)
        return now.over(now.source.part(0, limit), now.maps).in_order()

    @abstractmethod
    def in_order(self) -> Self:
        """The same rows, not shuffled."""

    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)

    def to_arrow(self) -> Any:
        """All rows as a pyarrow.Table, in stored order."""
        tables = list(self.tables())
        return concatenated(tables) if tables else self.source.schema.empty_table()

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows, or the first ones, as a DataFrame; tensors are a column of arrays."""
        few = self if limit is None else self.over_first(limit)
        return formatted(few.to_arrow(), PANDAS)

    def num_blocks(self) -> int:
        """The number of parts that are read one by one."""
        return len(self.source.sizes)
