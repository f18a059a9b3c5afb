"""Methods of a dataset that return another one with other columns or rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from holdfast.data.combined import chosen_of
from holdfast.data.errors import check_batch_size, check_seed
from holdfast.data.formats import PANDAS, Mapped, concatenated, format_of, formatted
from holdfast.data.methods.functions import (
    Adding,
    Computing,
    Keeping,
    OfRows,
    callable_of,
    of_tables,
    rows_table,
)
from holdfast.data.methods.whole import Whole
from holdfast.data.order import permutation
from holdfast.data.scheduling import without_scheduling
from holdfast.data.sources import TableSource
from holdfast.plain_numbers import takes_numbers
from holdfast.trial.errors import InvalidConfig

_SAMPLE = 2  # of the numbers of a permutation, apart from those of shuffles


class Changing(Whole):
    """Functions of rows and batches, columns, and the choice of rows."""

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
    ) -> Self:
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
    ) -> Self:
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
    ) -> Self:
        """The rows of the lists of dicts that `fn` returns for each row.

        This calls `fn` now for all rows, because the number of rows must be known; the result is
        in memory. Raises InvalidConfig.
        """
        given = OfRows.of(
            fn, "flat_map", fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs
        )
        caller = f"flat_map({given.__name__})"
        made = []
        for table in self.tables():
            rows = [row for found in given.made(table) for row in found]
            if rows:
                made.append(rows_table(rows, caller))
        if not made:
            raise InvalidConfig(f"{caller} returned no rows")
        return self.over(TableSource(concatenated(made).combine_chunks()))

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
    ) -> Self:
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
    ) -> Self:
        """Another column, which `fn` makes of each batch when the batch is needed."""
        added = Adding(
            column=col,
            function=callable_of(fn, "add_column"),
            batch_format=format_of(batch_format),
        )
        return self._by_tables(added)

    @without_scheduling
    def with_column(self, column_name: str, expr: Any, **ray_remote_args: Any) -> Self:
        """Another column, which an expression of `holdfast.data.expressions` or of pyarrow gives
        when a batch is needed. Raises InvalidConfig."""
        import pyarrow.compute as pc

        if not isinstance(expr, pc.Expression):
            raise InvalidConfig(
                f"with_column({column_name!r}) needs an expression such as col('x') + 1, not "
                f"{expr!r:.100}. add_column() takes a function"
            )
        return self._by_tables(Computing(column=column_name, expression=expr))

    @without_scheduling
    def select_columns(self, cols: str | Sequence[str], **ray_remote_args: Any) -> Self:
        """Only these columns, in this order. Raises InvalidConfig for an unknown one."""
        names = [cols] if isinstance(cols, str) else list(cols)
        self.checked(names, f"select_columns({names!r})")
        return self._by_tables(Keeping(names={name: name for name in names}))

    @without_scheduling
    def drop_columns(self, cols: str | Sequence[str], **ray_remote_args: Any) -> Self:
        """All columns but these. Raises InvalidConfig for an unknown one."""
        names = [cols] if isinstance(cols, str) else list(cols)
        self.checked(names, f"drop_columns({names!r})")
        kept = [name for name in self.columns() if name not in names]
        return self._by_tables(Keeping(names={name: name for name in kept}))

    @without_scheduling
    def rename_columns(
        self, names: Mapping[str, str] | Sequence[str], **ray_remote_args: Any
    ) -> Self:
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
    def limit(self, limit: int) -> Self:
        """The first rows, in stored order."""
        if type(limit) is not int or limit < 0:
            raise InvalidConfig(f"limit({limit!r}) must be a number of rows")
        return self.part(0, min(limit, self.count()))

    def random_sample(self, fraction: float, *, seed: int | None = None) -> Self:
        """Each row with this probability, in stored order; None is the seed 0. Reads nothing."""
        import numpy as np

        if not 0 <= fraction <= 1:
            raise InvalidConfig(f"random_sample({fraction!r}) must be a part from 0 to 1")
        bits = np.random.MT19937(np.random.SeedSequence((check_seed(seed), _SAMPLE)))
        return self._chosen(np.random.RandomState(bits).random_sample(self.count()) < fraction)

    def sort(
        self,
        key: str | Sequence[str],
        descending: bool | Sequence[bool] = False,
        boundaries: object = None,
    ) -> Self:
        """The rows sorted by one or several columns, in memory, and not shuffled. Empty values are
        last. Raises InvalidConfig."""
        import pyarrow.compute as pc

        keys = [key] if isinstance(key, str) else list(key)
        down = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(down) != len(keys):
            raise InvalidConfig(f"sort() got {len(keys)} keys and {len(down)} for descending")
        self.checked(keys, f"sort({key!r})")
        orders = ["descending" if one else "ascending" for one in down]
        table = self.to_arrow()
        order = pc.sort_indices(table, sort_keys=list(zip(keys, orders, strict=True)))
        return self.over_table(table.take(order))

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Sequence[str] | None = None,
        sort: bool = False,
    ) -> Self:
        """The same dataset: rows are read in the blocks that they are stored in, and each rank
        gets its part of them."""
        return self

    # -- parts --

    def drawn(self, count: int, seed: int, groups: Any = None) -> tuple[Self, Self]:
        """(the rest, `count` rows that were drawn at random), both in stored order; with `groups`,
        an array with a value for each row, as many of each value as of all."""
        import numpy as np

        mask = np.zeros(self.count(), bool)
        order = permutation(self.count(), seed)
        if groups is None:
            mask[order[len(order) - count :]] = True
        else:
            for value in np.unique(groups):
                rows = order[groups[order] == value]
                mask[rows[len(rows) - round(len(rows) * count / len(order)) :]] = True
        return self._chosen(~mask), self._chosen(mask)

    def codes(self, column: str) -> Any:
        """A number for each value of a column, by row."""
        import numpy as np

        numbers: dict[Any, int] = {}
        found = [
            numbers.setdefault(value, len(numbers))
            for table in self.tables()
            for value in table.column(column).to_pylist()
        ]
        return np.array(found)

    def _chosen(self, mask: Any) -> Self:
        now = self.exact()
        return now.over(chosen_of(now.source, mask), now.maps)

    def _by_tables(self, function: Callable[[Any], Any]) -> Self:
        return self.over(self.source, (*self.maps, of_tables(function)))


def _where(table: Any, expr: Any) -> Any:
    """The rows of a table for which an expression is true, as an array of booleans."""
    import numpy as np

    if not isinstance(expr, str):
        import pyarrow.compute as pc

        if not isinstance(expr, pc.Expression):
            raise InvalidConfig(
                f"filter(expr={expr!r:.100}) must be a text such as 'x > 1', or a "
                f"pyarrow.compute.Expression"
            )
        numbered = table.append_column("\0row", [np.arange(table.num_rows)])
        mask = np.zeros(table.num_rows, bool)
        mask[numbered.filter(expr).column("\0row").to_numpy()] = True
        return mask
    found = formatted(table, PANDAS).eval(expr)
    return np.asarray(found, dtype=bool)
