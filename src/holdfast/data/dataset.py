"""A dataset: rows in tables or files, with their functions and their shuffling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Self

from holdfast.compat.advice import explained_attribute
from holdfast.data.iterator import Iterating, Passes, PassPlan
from holdfast.data.order import Order, Shuffle, left_of, permutation, share
from holdfast.data.rows import (
    PANDAS,
    PYARROW,
    Mapped,
    Rows,
    Source,
    TableSource,
    ahead,
    batched,
    check_batch_size,
    check_seed,
    chosen_of,
    concatenated,
    count_of,
    format_of,
    formatted,
    keeps_rows,
    mapped,
    mapped_tables,
    name_of,
    pieces,
    replaced,
    rows_in,
    rows_of,
    table_of,
    unknown_column,
)
from holdfast.data.scheduling import without_scheduling
from holdfast.dataclass import dataclass
from holdfast.plain_numbers import plain_number, takes_numbers
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
class Dataset(Iterating):
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

    def iterator(self) -> DataIterator:
        """All rows, epoch after epoch, with a `state_dict` for checkpoints."""
        return self.deal(0, 1)

    def passes(self, plan: PassPlan) -> Iterable[Any]:
        return self.iterator().passes(plan)

    def over(self, source: Source, maps: Sequence[Mapped] = ()) -> Dataset:
        """A dataset of another source, which is shuffled as this one is."""
        shuffle = self.shuffle and replace(self.shuffle, window=source.window)
        return replace(self, source=source, shuffle=shuffle, maps=tuple(maps), known=Known())

    def exact(self, rows: int | None = None) -> Dataset:
        """A dataset whose functions return a row for each row of its source: this one or, if a
        function of `map_batches` does not, one of all its results in memory. With `rows` the
        functions are judged by that many rows."""
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
        """The same rows, not shuffled."""
        return replace(self, shuffle=None)

    # -- its rows --

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

    def tables(self) -> Iterator[Any]:
        """All rows in stored order as pyarrow.Tables, of which one is in memory."""
        return mapped_tables(self.source, self.maps)

    def over_table(self, table: Any) -> Dataset:
        """A dataset of these rows, not shuffled."""
        return self.over(TableSource(table.combine_chunks())).in_order()

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

    def over_first(self, limit: int) -> Dataset:
        """The first rows, not shuffled."""
        now = self.exact(limit)
        return now.over(now.source.part(0, limit), now.maps).in_order()

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

    # -- functions --

    @without_scheduling
    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Apply `fn` to each batch when the batch is needed, in the process that needs it.

        `fn` gets a batch of the loop, or at most `batch_size` rows of it, and returns a dict of
        arrays, a DataFrame or a table, or yields them. A class is made once in each process, with
        the constructor's arguments, and called for each batch.

        A function that returns another number of rows is called for all of them as soon as their
        number is needed (`count()`, `limit()`, a training), and the result is in memory. Whether
        a function does is known from the first 256 rows; one that does so later only is called
        for all rows by `count()`, `materialize()` and the like, and is an error in a loop.

        Raises InvalidConfig.
        """
        size = None if batch_size == "default" else batch_size
        check_batch_size(size, or_none=True)
        function = callable_of(fn, "map_batches", fn_constructor_args, fn_constructor_kwargs)
        one = Mapped(
            function=function,
            batch_size=size if isinstance(size, int) else None,
            batch_format=format_of(batch_format),
            arguments=dict(fn_kwargs or {}),
            positional=tuple(fn_args or ()),
            is_free=True,
        )
        return self.over(self.source, (*self.maps, one))

    @without_scheduling
    def map(
        self,
        fn: Callable[..., Any],
        *,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Apply `fn` to each row, a dict, when the row is needed; it returns another dict.

        Raises InvalidConfig; for a result that is not a dict, when the row is needed.
        """
        return self._by_tables(
            OfRows.of(fn, "map", fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        )

    @without_scheduling
    def flat_map(
        self,
        fn: Callable[..., Any],
        *,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """The rows of the lists of dicts that `fn` returns for each row.

        This calls `fn` now for all rows, because the number of rows must be known; the result is
        in memory. Raises InvalidConfig.
        """
        given = OfRows.of(
            fn, "flat_map", fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs
        )
        rows = [row for table in self.tables() for found in given.made(table) for row in found]
        if not rows:
            raise InvalidConfig(f"flat_map({given.__name__}) returned no rows")
        return self.over(TableSource(rows_table(rows, f"flat_map({given.__name__})")))

    @without_scheduling
    def filter(
        self,
        fn: Callable[..., Any] | None = None,
        expr: Any = None,
        *,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """The rows for which `fn`, called with the row as a dict, returns true; or for which
        `expr` is true, a text as in `DataFrame.eval` or a pyarrow expression.

        This reads all rows once, now, because the number of rows must be known, and keeps the
        numbers of the chosen rows. Files are read again when rows are needed.

        Raises InvalidConfig.
        """
        import numpy as np

        if (fn is None) == (expr is None):
            raise InvalidConfig("filter() takes a function of a row, or expr=")
        whole = self.exact()
        if fn is None:
            masks = [_where(table, expr) for table in whole.tables()]
        else:
            given = OfRows.of(
                fn, "filter", fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs
            )
            masks = [
                np.array([bool(one) for one in given.made(table)]) for table in whole.tables()
            ]
        return whole._chosen(np.concatenate(masks) if masks else np.zeros(0, bool))

    # -- columns --

    @without_scheduling
    def add_column(
        self,
        col: str,
        fn: Callable[..., Any],
        *,
        batch_format: str = PANDAS,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Another column, which `fn` makes of each batch when the batch is needed."""
        added = Adding(
            column=col,
            function=callable_of(fn, "add_column"),
            batch_format=format_of(batch_format),
        )
        return self._by_tables(added)

    @without_scheduling
    def select_columns(self, cols: str | Sequence[str], **ray_remote_args: Any) -> Dataset:
        """Only these columns, in this order. Raises InvalidConfig for an unknown one."""
        names = [cols] if isinstance(cols, str) else list(cols)
        self.checked(names, f"select_columns({names!r})")
        return self._by_tables(Keeping(names={name: name for name in names}))

    @without_scheduling
    def drop_columns(self, cols: str | Sequence[str], **ray_remote_args: Any) -> Dataset:
        """All columns but these. Raises InvalidConfig for an unknown one."""
        names = [cols] if isinstance(cols, str) else list(cols)
        self.checked(names, f"drop_columns({names!r})")
        kept = [name for name in self.columns() if name not in names]
        return self._by_tables(Keeping(names={name: name for name in kept}))

    @without_scheduling
    def rename_columns(
        self, names: Mapping[str, str] | Sequence[str], **ray_remote_args: Any
    ) -> Dataset:
        """Other names: {old: new}, or one for each column. Raises InvalidConfig."""
        known = self.columns()
        if not isinstance(names, Mapping):
            if len(names) != len(known):
                raise InvalidConfig(
                    f"rename_columns() got {len(names)} names for the {len(known)} columns "
                    f"{', '.join(known)}"
                )
            names = dict(zip(known, names, strict=True))
        self.checked(list(names), f"rename_columns({dict(names)!r})")
        renamed = {name: names.get(name, name) for name in known}
        if len(set(renamed.values())) < len(renamed):
            raise InvalidConfig(f"rename_columns({dict(names)!r}) gives two columns one name")
        return self._by_tables(Keeping(names=renamed))

    # -- rows --

    @takes_numbers
    def limit(self, limit: int) -> Dataset:
        """The first rows, in stored order."""
        if type(limit) is not int or limit < 0:
            raise InvalidConfig(f"limit({limit!r}) must be a number of rows")
        return self.part(0, min(limit, self.count()))

    def union(self, *other: Dataset) -> Dataset:
        """The rows of this dataset, then those of the others, in memory.

        Raises InvalidConfig if their columns differ.
        """
        for one in other:
            if set(one.columns()) != set(self.columns()):
                shown = " and ".join(", ".join(each.columns()) for each in (self, one))
                raise InvalidConfig(f"union() of datasets with different columns: {shown}")
        tables = [one.to_arrow().replace_schema_metadata() for one in (self, *other)]
        return self.over(TableSource(concatenated(tables).combine_chunks()))

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Sequence[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """The same dataset: rows are read in the blocks that they are stored in, and each rank
        gets its part of them."""
        return self

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
    ) -> list[DataIterator]:
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
            return self._drawn(last, number, stratify)
        if not shuffle:
            return self.part(0, rows - last), self.part(rows - last, rows)
        now = self.exact()
        if not isinstance(now.source, TableSource):
            return now._drawn(last, number)
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

    def deal(self, rank: int, ranks: int) -> DataIterator:
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

    # -- parts and functions --

    def _drawn(
        self, count: int, seed: int, stratify: str | None = None
    ) -> tuple[Dataset, Dataset]:
        """(the rest, `count` rows that were drawn at random), both in stored order; with
        `stratify`, as many of each value of that column as of all."""
        import numpy as np

        mask = np.zeros(self.count(), bool)
        order = permutation(self.count(), seed)
        if stratify is None:
            mask[order[len(order) - count :]] = True
        else:
            codes = self.to_arrow().column(stratify).combine_chunks().dictionary_encode("encode")
            groups = codes.indices.to_numpy()
            for value in np.unique(groups):
                rows = order[groups[order] == value]
                mask[rows[len(rows) - round(len(rows) * count / len(order)) :]] = True
        return self._chosen(~mask), self._chosen(mask)

    def _chosen(self, mask: Any) -> Dataset:
        now = self.exact()
        return now.over(chosen_of(now.source, mask), now.maps)

    def _by_tables(self, function: Callable[[Any], Any]) -> Dataset:
        return self.over(
            self.source, (*self.maps, Mapped(function=function, batch_format=PYARROW))
        )


def _where(table: Any, expr: Any) -> Any:
    """The rows of a table for which an expression is true, as an array of booleans."""
    import numpy as np
    import pyarrow.compute as pc
    import pyarrow.dataset as pds

    if isinstance(expr, str):
        return np.asarray(formatted(table, PANDAS).eval(expr), dtype=bool)
    if not isinstance(expr, pc.Expression):
        raise InvalidConfig(
            f"filter(expr={expr!r:.100}) must be a text such as 'x > 1', or a "
            f"pyarrow.compute.Expression"
        )
    found = pds.dataset(table).to_table(columns={"kept": expr}).column("kept")
    return found.fill_null(False).to_numpy().astype(bool)


# -- the part of a rank ---------------------------------------------------------------------------

_JUDGED = 256


@dataclass(slots=True, kw_only=True, eq=False)
class _Epoch:
    """The position in an epoch: earlier shares, and what each rank has taken since.

    `order` is how rows were shuffled when it was begun.
    """

    number: int
    dealt: tuple[tuple[int, int], ...] = ()
    taken: int = 0
    order: dict[str, Any] | None = None
    is_under_way: bool = False


class DataIterator(Iterating):
    """The result of `train.get_dataset_shard` for a Dataset: the rows of one rank of `ranks`.

    Every `for` over its batches is the next epoch, unless `set_epoch` sets another. If rows are
    shuffled, each epoch has its own order. The ranks' parts of an epoch have equally many rows: if
    the rows are not a multiple of the ranks, some ranks get their last row twice; with `drop_last`
    some rows are left out instead.

    `state_dict()`, for a checkpoint, has the number of rows that all ranks have got in this epoch,
    without those fetched ahead. After `load_state_dict` the next `for` continues there, and the
    rest of the epoch is split among the current ranks. All ranks must take equally many batches of
    one size before a checkpoint.
    """

    def __init__(self, dataset: Dataset, rank: int, ranks: int) -> None:
        self._dataset = dataset.exact(_JUDGED)
        self._rank, self._ranks = rank, ranks
        self._rows = sum(self._dataset.source.sizes)
        self._epoch = _Epoch(number=0)

    @property
    def epoch(self) -> int:
        """The number of the current epoch, or of the next one."""
        return self._epoch.number

    def set_epoch(self, epoch: int) -> None:
        """Let the next `for` read this epoch, or its rest if a state was loaded."""
        now = self._epoch
        if epoch != now.number or now.is_under_way:
            self._epoch = _Epoch(number=epoch)

    def state_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; the same for all ranks that are in step."""
        now = self._epoch
        dealt = [*now.dealt, (self._ranks, now.taken)] if now.taken else list(now.dealt)
        return {
            "epoch": now.number,
            "rows": self._rows,
            "dealt": [list(one) for one in dealt],
            "order": now.order if dealt else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at the state in the next `for`, also with another number of ranks.

        Raises InvalidConfig for the state of a dataset of another size, and for an invalid state.
        """
        if not isinstance(state, Mapping) or not {"epoch", "rows", "dealt", "order"} <= set(state):
            raise InvalidConfig(
                f"load_state_dict() takes the result of state_dict() of a shard, not "
                f"{state!r:.100}"
            )
        if state["rows"] != self._rows:
            raise InvalidConfig(
                f"this state is of a dataset with {state['rows']} rows, but this one has "
                f"{self._rows}: pass the dataset with which the training began"
            )
        dealt = tuple((ranks, taken) for ranks, taken in state["dealt"])
        self._epoch = _Epoch(number=state["epoch"], dealt=dealt, order=state["order"])

    def schema(self) -> Any:
        return self._dataset.schema()

    def count(self) -> int:
        """The number of this rank's rows in a whole epoch, with repeated ones."""
        return sum(stop - start for start, stop in share(left_of(self._rows, ()), *self._place))

    def materialize(self) -> Dataset:
        """This rank's part as a dataset in memory, each row once."""
        start, stop = self._rank * self._rows, (self._rank + 1) * self._rows
        return self._dataset.part(start // self._ranks, stop // self._ranks).materialize()

    @property
    def _place(self) -> tuple[int, int]:
        return self._rank, self._ranks

    def passes(self, plan: PassPlan) -> Iterable[Any]:
        return Passes(partial(self._pass, plan))

    def _pass(self, plan: PassPlan) -> Iterator[Any]:
        shuffle = plan.shuffle(self._dataset.shuffle)
        now = self._begin(shuffle)
        for rows, made in self._found(plan, shuffle, now):
            if plan.row_by_row:
                for row in made:
                    now.taken += 1
                    yield row
            else:
                now.taken += rows
                yield made
        if self._epoch is now:
            self._epoch = _Epoch(number=now.number + 1)

    def _begin(self, shuffle: Shuffle | None) -> _Epoch:
        """Begin or continue an epoch. Raises InvalidConfig if it would continue in another
        order."""
        now = self._epoch
        if now.is_under_way:
            now = _Epoch(number=now.number + 1)
        order = None if shuffle is None else shuffle.as_json()
        if now.dealt and order != now.order:
            raise InvalidConfig(
                f"epoch {now.number} started with the order {now.order} and would continue with "
                f"{order}, so that rows would be seen twice: shuffle with the same seed and "
                f"buffer size as before, or begin an epoch with set_epoch()"
            )
        self._epoch = replace(now, order=order, is_under_way=True)
        return self._epoch

    def _found(
        self, plan: PassPlan, shuffle: Shuffle | None, now: _Epoch
    ) -> Iterator[tuple[int, Any]]:
        source = self._dataset.source
        order = Order.of(source.sizes, shuffle, now.number)
        left = left_of(self._rows, now.dealt)
        own = share(left, *self._place, pads=not plan.drop_last)
        read = pieces(source, order, own)
        if source.is_slow:
            read = ahead(read, min(plan.prefetch, 1))
        batches = batched(read, plan.batch_size, drop_last=plan.drop_last)
        maps = self._dataset.maps
        made = map(partial(_made, plan, maps), batches)
        # A thread is only worth it if there is something to wait for.
        return made if plan.is_light and not maps else ahead(made, plan.prefetch)


def _made(plan: PassPlan, maps: Sequence[Mapped], rows: Rows) -> tuple[int, Any]:
    return count_of(rows), plan.made(mapped(maps, rows))


# -- functions of batches -------------------------------------------------------------------------


class Constructed:
    """A class whose object is made in each process that calls it, at the first call."""

    def __init__(self, kind: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._how = (kind, tuple(args), dict(kwargs))
        self._made: Any = None
        self.__name__ = kind.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._made is None:
            kind, given, named = self._how
            self._made = kind(*given, **named)
        return self._made(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Constructed, self._how


def callable_of(
    fn: Any,
    caller: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A function, or one that makes an object of a class and calls that.

    Raises InvalidConfig for anything else.
    """
    if isinstance(fn, type):
        return Constructed(fn, args or (), kwargs or {})
    if not callable(fn):
        raise InvalidConfig(f"{caller}() needs a function of a batch, not {fn!r:.100}")
    if args or kwargs:
        raise InvalidConfig(
            f"{caller}(fn_constructor_args=...) is for a class, and {fn!r:.100} is a function"
        )
    function: Callable[..., Any] = fn
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRows:
    """A function of a row, which returns a row, as a function of a batch."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fn: Any,
        caller: str,
        fn_args: Sequence[Any] | None,
        fn_kwargs: Mapping[str, Any] | None,
        constructor_args: Sequence[Any] | None,
        constructor_kwargs: Mapping[str, Any] | None,
    ) -> Self:
        """The arguments of `caller`, a method of a dataset. Raises InvalidConfig as `callable_of`
        does."""
        return cls(
            function=callable_of(fn, caller, constructor_args, constructor_kwargs),
            arguments=tuple(fn_args or ()),
            keywords=dict(fn_kwargs or {}),
        )

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, batch: Any) -> Any:
        return rows_table(list(self.made(batch)), f"map({self.__name__})")

    def made(self, batch: Any) -> Iterator[Any]:
        for row in rows_in(batch):
            yield self.function(row, *self.arguments, **self.keywords)


def rows_table(rows: Sequence[Any], caller: str) -> Any:
    """A table of rows. Raises InvalidConfig if they are not dicts of the same keys."""
    names = list(rows[0]) if rows and isinstance(rows[0], Mapping) else []
    for row in rows:
        if not isinstance(row, Mapping) or set(row) != set(names):
            raise InvalidConfig(
                f"{caller} returned {row!r:.100}: return a dict with the keys {names} for each row"
                if names
                else f"{caller} returned a {type(row).__name__}: return a dict"
            )
    return table_of({name: [row[name] for row in rows] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Some columns, in this order, perhaps with other names."""

    names: Mapping[str, str]

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        return pa.table(
            [table.column(name) for name in self.names], names=list(self.names.values())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """The columns of a batch, and one that a function makes of it."""

    column: str
    function: Callable[..., Any]
    batch_format: str

    def __call__(self, table: Any) -> Any:
        made = self.function(formatted(table, self.batch_format))
        values = (
            made if isinstance(made, (Sequence, Mapping)) or hasattr(made, "__len__") else None
        )
        if values is None:
            values = [made] * table.num_rows  # one value for all rows
        if rows_of({self.column: values}) != table.num_rows:
            raise InvalidConfig(
                f"add_column({self.column!r}) returned {len(values)} values for "
                f"{table.num_rows} rows"
            )
        added = table_of({self.column: values}).column(0)
        return replaced(table, self.column, added)
