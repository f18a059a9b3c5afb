"""A dataset: rows in tables or files, with their shuffling and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.data.batches import pieces
from holdfast.data.errors import check_batch_size
from holdfast.data.formats import Mapped, as_arrow, format_of, mapped
from holdfast.data.iterating import Iterating, PassPlan
from holdfast.data.iterator import DataIterator
from holdfast.data.order import Order, Shuffle, permutation
from holdfast.data.sources import Source, TableSource
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Dataset(Iterating):
    """Rows of named columns, in memory or in Parquet files that are read on demand.

    Made by `from_items`, `from_pandas`, `from_arrow`, `from_numpy`, `range` and `read_parquet`.
    Every method returns another dataset and does not change this one. Pass it to a trainer in
    `datasets`, and each rank gets its part from `train.get_dataset_shard(name)`.

    A `for` over its own batches starts from the beginning, in the order of epoch 0;
    `iterator()` counts epochs and can resume in the middle of one.
    """

    source: Source
    shuffle: Shuffle | None = None
    maps: tuple[Mapped, ...] = ()

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.source.schema)
        return f"Dataset({self.count():,} rows; {columns})"

    def count(self) -> int:
        """The number of rows. Reads nothing."""
        return sum(self.source.sizes)

    def schema(self) -> Any:
        """Names and types of the columns; after `map_batches` those of one mapped row."""
        if not self.maps:
            return self.source.schema
        if not self.count():
            raise InvalidConfig("the result of map_batches for no rows is not known")
        return self.part(0, 1).to_arrow().schema

    def iterator(self) -> DataIterator[Dataset]:
        """All rows, epoch after epoch, with a `state_dict` for checkpoints."""
        return self.deal(0, 1)

    def passes(self, plan: PassPlan) -> Iterable[Any]:
        return self.iterator().passes(plan)

    # -- other datasets --

    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | None = None,
        batch_format: str | None = "default",
        fn_kwargs: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Apply `fn` to each batch when the batch is needed, in the process that needs it.

        `fn` gets a batch of the loop, or at most `batch_size` rows of it, and returns a dict of
        arrays, a DataFrame or a table with the same number of rows.

        Raises InvalidConfig; for another number of rows, when the batch is needed.
        """
        check_batch_size(batch_size, or_none=True)
        if not callable(fn):
            raise InvalidConfig(f"map_batches() needs a function of a batch, not {fn!r:.100}")
        one = Mapped(
            function=fn,
            batch_size=batch_size,
            batch_format=format_of(batch_format),
            arguments=dict(fn_kwargs or {}),
        )
        return replace(self, maps=(*self.maps, one))

    def random_shuffle(self, *, seed: int | None = None) -> Dataset:
        """The same rows in an order that depends only on `seed` (None is 0) and the epoch.

        Rows in memory are shuffled as a whole. For files, the row groups are shuffled, then the
        rows within windows of 65,536, or of the largest row group. One window is in memory.
        """
        return replace(
            self, shuffle=Shuffle(seed=_seed(seed), window=self.source.window, blocks=True)
        )

    def part(self, start: int, stop: int) -> Dataset:
        """Rows `start` to `stop`, without those at `stop` and after."""
        source = self.source.part(start, stop)
        shuffle = self.shuffle and replace(self.shuffle, window=source.window)
        return replace(self, source=source, shuffle=shuffle)

    def split(self, n: int) -> list[Dataset]:
        """`n` datasets of consecutive rows, whose sizes differ by one row at most.

        Raises InvalidConfig if there are fewer rows.
        """
        rows = self.count()
        if type(n) is not int or not 1 <= n <= rows:
            raise InvalidConfig(f"split({n!r}) of a dataset with {rows} rows: 1 to {rows} parts")
        return [self.part(at * rows // n, (at + 1) * rows // n) for at in range(n)]

    def train_test_split(
        self, test_size: float, *, shuffle: bool = False, seed: int | None = None
    ) -> tuple[Dataset, Dataset]:
        """Two datasets; the second has the last `test_size` rows, a number or a part of one.

        With `shuffle`, rows in memory are shuffled first, with `seed` (None is 0).

        Raises InvalidConfig if one of them would be empty, and for files with `shuffle`.
        """
        rows = self.count()
        last = round(rows * test_size) if isinstance(test_size, float) else test_size
        if not 0 < last < rows:
            raise InvalidConfig(
                f"train_test_split({test_size!r}) of {rows} rows leaves one part empty: "
                f"pass a part between 0 and 1, or a number of rows between 0 and {rows}"
            )
        whole = self._in_another_order(_seed(seed)) if shuffle else self
        return whole.part(0, rows - last), whole.part(rows - last, rows)

    def materialize(self) -> Dataset:
        """The same rows in memory, after `map_batches`; still shuffled in each epoch."""
        made = Dataset(source=TableSource(self.to_arrow()))
        return made if self.shuffle is None else made.random_shuffle(seed=self.shuffle.seed)

    # -- its rows --

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows, in stored order."""
        check_batch_size(limit, name="limit")
        few = replace(self.part(0, min(limit, self.count())), shuffle=None)
        return list(few.iter_rows())

    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)

    def to_arrow(self) -> Any:
        """All rows as a pyarrow.Table, in stored order."""
        import pyarrow as pa

        order = Order.of(self.source.sizes, None, 0)
        if not self.count():
            return self.source.schema.empty_table()
        found = pieces(self.source, order, ((0, self.count()),))
        if not self.maps:
            return pa.concat_tables([piece.table() for piece in found])
        cut = (
            piece.cut(at, min(at + _ROWS_AT_ONCE, len(piece)))
            for piece in found
            for at in range(0, len(piece), _ROWS_AT_ONCE)
        )
        return pa.concat_tables([as_arrow(mapped(self.maps, [rows])) for rows in cut])

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows, or the first ones, as a DataFrame; tensors are a column of arrays."""
        from holdfast.data.formats import PANDAS, formatted

        few = self if limit is None else self.part(0, min(limit, self.count()))
        return formatted(few.to_arrow(), PANDAS)

    # -- what experiment.data_config knows of it --

    def deal(self, rank: int, ranks: int) -> DataIterator[Dataset]:
        """The part of one rank. Raises InvalidConfig if there are fewer rows than ranks."""
        self.check(ranks)
        return DataIterator(self, rank, ranks)

    def check(self, ranks: int) -> None:
        """Raises InvalidConfig if not every rank would have a row, DatasetGone if files are
        missing."""
        rows = self.count()
        if not rows:
            raise InvalidConfig("it has no rows")
        if rows < ranks:
            raise InvalidConfig(
                f"it has {rows} row{'s' * (rows > 1)}, fewer than the {ranks} workers that share "
                f"it: use fewer workers (ScalingConfig), or give all rows to each of them "
                f"(DataConfig(datasets_to_split=[...]) without its name)"
            )
        self.source.check()

    def _in_another_order(self, seed: int) -> Dataset:
        if not isinstance(self.source, TableSource):
            raise InvalidConfig(
                "train_test_split(shuffle=True) needs the rows in memory: call materialize() "
                "first, or split the files without shuffle"
            )
        table = self.source.read(0, 0, self.count()).take(permutation(self.count(), seed))
        return replace(self, source=TableSource(table))


def _seed(seed: int | None) -> int:
    """Raises InvalidConfig."""
    if seed is not None and (type(seed) is not int or seed < 0):
        raise InvalidConfig(f"seed={seed!r} must be a whole number from 0 on, or None")
    return seed or 0
