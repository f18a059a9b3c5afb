"""A dataset: rows in tables or files, with their shuffling and functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import accumulate, pairwise
from typing import Any

from holdfast.data.combined import keeps_rows, mapped_tables
from holdfast.data.errors import check_seed
from holdfast.data.formats import PYARROW, Mapped, concatenated
from holdfast.data.iterating import PassPlan
from holdfast.data.iterator import DataIterator
from holdfast.data.methods.changing import Changing
from holdfast.data.methods.combining import Combining
from holdfast.data.methods.summing import Summing
from holdfast.data.methods.writing import Writing
from holdfast.data.order import Shuffle, permutation
from holdfast.data.scheduling import without_scheduling
from holdfast.data.sources import Source, TableSource
from holdfast.dataclass import dataclass
from holdfast.plain_numbers import plain_number
from holdfast.replaced import explained_attribute
from holdfast.trial.errors import InvalidConfig


class Known:
    """The first `kept` rows of a dataset have one row each after its functions, or `source` has
    all results. Not pickled."""

    def __init__(self) -> None:
        self.kept = 0
        self.source: Source | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Known, ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Dataset(Changing, Combining, Summing, Writing):
    """Rows of named columns, in memory or in files that are read on demand.

    Made by `from_items`, `from_pandas` and the like, `range`, and `read_parquet`, `read_csv` and
    the like. Every method returns another dataset and does not change this one. Pass it to a
    trainer in `datasets`, and each rank gets its part from `train.get_dataset_shard(name)`.

    A `for` over its own batches starts from the beginning, in the order of epoch 0;
    `iterator()` counts epochs and can resume in the middle of one.
    """

    source: Source = field()
    shuffle: Shuffle | None = None
    maps: tuple[Mapped, ...] = ()
    known: Known = field(default_factory=Known)

    def __getattr__(self, name: str) -> Any:
        return explained_attribute(self, name)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.source.schema)
        return f"Dataset({self.count():,} rows; {columns})"

    def iterator(self) -> DataIterator[Dataset]:
        """All rows, epoch after epoch, with a `state_dict` for checkpoints."""
        return self.deal(0, 1)

    def passes(self, plan: PassPlan) -> Iterable[Any]:
        return self.iterator().passes(plan)

    def over(self, source: Source, maps: Sequence[Mapped] = ()) -> Dataset:
        shuffle = self.shuffle and replace(self.shuffle, window=source.window)
        return replace(self, source=source, shuffle=shuffle, maps=tuple(maps), known=Known())

    def exact(self, rows: int | None = None) -> Dataset:
        known, all_rows = self.known, sum(self.source.sizes)
        wanted = all_rows if rows is None else min(rows, all_rows)
        if known.kept < wanted and any(one.is_free for one in self.maps):
            if keeps_rows(self.source.part(0, wanted), self.maps):
                known.kept = wanted
            else:
                table = concatenated(list(mapped_tables(self.source, self.maps)))
                known.kept, known.source = all_rows, TableSource(table.combine_chunks())
        return self if known.source is None else self.over(known.source)

    def in_order(self) -> Dataset:
        return replace(self, shuffle=None)

    # -- other datasets --

    @without_scheduling
    def random_shuffle(
        self, *, seed: int | None = None, num_blocks: int | None = None, **ray_remote_args: Any
    ) -> Dataset:
        """The same rows in an order that depends only on `seed` (None is 0) and the epoch.

        Rows in memory are shuffled as a whole. For files, the row groups are shuffled, then the
        rows within windows of 65,536, or of the largest row group. One window is in memory.
        """
        shuffle = Shuffle(seed=check_seed(seed), window=self.source.window, blocks=True)
        return replace(self, shuffle=shuffle)

    def randomize_block_order(self, *, seed: int | None = None) -> Dataset:
        """The same as `random_shuffle`."""
        return self.random_shuffle(seed=seed)

    def part(self, start: int, stop: int) -> Dataset:
        """Rows `start` to `stop`, without those at `stop` and after."""
        now = self.exact()
        return now.over(now.source.part(start, stop), now.maps)

    @without_scheduling
    def split(self, n: int, *, equal: bool = False, **ray_remote_args: Any) -> list[Dataset]:
        """`n` datasets of consecutive rows, whose sizes differ by one row at most; with `equal`
        the last rows are left out, so that they do not differ.

        Raises InvalidConfig if there are fewer rows.
        """
        rows = self.count()
        if type(n) is not int or not 1 <= n <= rows:
            raise InvalidConfig(f"split({n!r}) of a dataset with {rows} rows: 1 to {rows} parts")
        used = rows - rows % n if equal else rows
        return [self.part(at * used // n, (at + 1) * used // n) for at in range(n)]

    def streaming_split(
        self, n: int, *, equal: bool = False, locality_hints: Sequence[Any] | None = None
    ) -> list[DataIterator[Dataset]]:
        """Iterators over the parts of `split`, each to be read epoch after epoch by one consumer.

        None waits for another one; `locality_hints` has no effect. Raises InvalidConfig if there
        are fewer rows.
        """
        return [part.iterator() for part in self.split(n, equal=equal)]

    def split_at_indices(self, indices: Sequence[int]) -> list[Dataset]:
        """The rows up to the first index, from there up to the second, and so on.

        Raises InvalidConfig for indices that are not sorted.
        """
        indices = [plain_number(at) for at in indices]
        bounds = [0, *(min(at, self.count()) for at in indices), self.count()]
        if any(type(at) is not int for at in indices) or bounds != sorted(bounds):
            raise InvalidConfig(f"split_at_indices({indices!r}): numbers of rows, in order")
        return [self.part(start, stop) for start, stop in pairwise(bounds)]

    def split_proportionately(self, proportions: Sequence[float]) -> list[Dataset]:
        """Datasets of these parts of the rows, and one of the rest.

        Raises InvalidConfig if the parts are not between 0 and 1, or 1 together.
        """
        if not proportions or min(proportions) <= 0 or sum(proportions) >= 1:
            raise InvalidConfig(
                f"split_proportionately({proportions!r}): parts above 0, less than 1 together"
            )
        return self.split_at_indices(
            [int(self.count() * part) for part in accumulate(proportions)]
        )

    @without_scheduling
    def train_test_split(
        self,
        test_size: float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
        **ray_remote_args: Any,
    ) -> tuple[Dataset, Dataset]:
        """Two datasets; the second has the last `test_size` rows, a number or a part of one.

        With `shuffle`, rows in memory are shuffled first, with `seed` (None is 0); rows of files
        are drawn, and both parts keep the stored order. `stratify` names a column: both parts have
        its values in the same proportions.

        Raises InvalidConfig if one of them would be empty.
        """
        rows = self.count()
        last = round(rows * test_size) if isinstance(test_size, float) else test_size
        if not 0 < last < rows:
            raise InvalidConfig(
                f"train_test_split({test_size!r}) of {rows} rows leaves one part empty: "
                f"pass a part between 0 and 1, or a number of rows between 0 and {rows}"
            )
        number = check_seed(seed)
        if stratify is not None:
            self.checked([stratify], f"train_test_split(stratify={stratify!r})")
            return self.drawn(last, number, self.codes(stratify))
        if not shuffle:
            return self.part(0, rows - last), self.part(rows - last, rows)
        now = self.exact()
        if not isinstance(now.source, TableSource):
            return now.drawn(last, number)
        table = now.source.read(0, 0, rows).take(permutation(rows, number))
        whole = now.over(TableSource(table), now.maps)
        return whole.part(0, rows - last), whole.part(rows - last, rows)

    def materialize(self) -> Dataset:
        """The same rows in memory, after `map_batches`, in one order for all epochs: that of
        epoch 0 if they are shuffled."""
        if self.shuffle is None or not self.count():
            return self.over_table(self.to_arrow())
        batches = self.iter_batches(batch_size=None, batch_format=PYARROW)
        return self.over_table(concatenated(list(batches)))

    # -- what experiment.data_config knows of it --

    def deal(self, rank: int, ranks: int) -> DataIterator[Dataset]:
        """The part of one rank. Raises InvalidConfig if there are fewer rows than ranks."""
        self.check(ranks)
        return DataIterator(self, rank, ranks)

    def check(self, ranks: int) -> None:
        """Raises InvalidConfig if not every rank would have a row, DatasetGone if files are
        missing."""
        rows = sum(self.source.sizes)
        if not rows:
            raise InvalidConfig("it has no rows")
        if rows < ranks:
            raise InvalidConfig(
                f"it has {rows} row{'s' * (rows > 1)}, fewer than the {ranks} workers that share "
                f"it: use fewer workers (ScalingConfig), or give all rows to each of them "
                f"(DataConfig(datasets_to_split=[...]) without its name)"
            )
        self.source.check()
