"""Groups of a dataset's rows that have the same values in some columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

from holdfast.data.aggregate import AggregateFn, Count, Max, Mean, Min, Std, Sum, numbers_of
from holdfast.data.formats import as_arrow, concatenated, format_of, formatted, name_of
from holdfast.data.methods.functions import callable_of
from holdfast.data.methods.whole import Whole
from holdfast.data.scheduling import without_scheduling
from holdfast.trial.errors import InvalidConfig

W = TypeVar("W", bound=Whole)
On = str | Sequence[str] | None


class GroupedData(Generic[W]):
    """The result of `Dataset.groupby`. Its methods return a dataset in memory with a row for each
    group, sorted by the key. The columns that they use are in memory meanwhile."""

    def __init__(self, dataset: W, key: str | Sequence[str] | None) -> None:
        self._dataset = dataset
        names = [] if key is None else [key] if isinstance(key, str) else list(key)
        self._keys = dataset.checked(names, f"groupby({key!r})")

    def aggregate(self, *aggs: AggregateFn) -> W:
        """Several aggregates of `holdfast.data.aggregate`. Raises InvalidConfig."""
        return self._dataset.over_table(self._dataset.aggregated(self._keys, aggs))

    def count(self) -> W:
        """The rows of each group, in the column "count()"."""
        return self.aggregate(Count())

    def sum(self, on: On = None, ignore_nulls: bool = True) -> W:
        """The sums of columns, in "sum(column)"; by default of all columns of numbers."""
        return self.aggregate(*(Sum(one, ignore_nulls) for one in self._columns(on)))

    def min(self, on: On = None, ignore_nulls: bool = True) -> W:
        """The least values, in "min(column)"."""
        return self.aggregate(*(Min(one, ignore_nulls) for one in self._columns(on)))

    def max(self, on: On = None, ignore_nulls: bool = True) -> W:
        """The greatest values, in "max(column)"."""
        return self.aggregate(*(Max(one, ignore_nulls) for one in self._columns(on)))

    def mean(self, on: On = None, ignore_nulls: bool = True) -> W:
        """The means, in "mean(column)"."""
        return self.aggregate(*(Mean(one, ignore_nulls) for one in self._columns(on)))

    def std(self, on: On = None, ddof: int = 1, ignore_nulls: bool = True) -> W:
        """The standard deviations, in "std(column)"."""
        return self.aggregate(*(Std(one, ddof, ignore_nulls) for one in self._columns(on)))

    @without_scheduling
    def map_groups(
        self,
        fn: Callable[..., Any],
        *,
        batch_format: str | None = "default",
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **ray_remote_args: Any,
    ) -> W:
        """The rows that `fn` returns for the rows of each group, a batch of this format.

        This calls `fn` now for each group, in the order of the key. All rows are in memory.

        Raises InvalidConfig.
        """
        function = callable_of(fn, "map_groups", fn_constructor_args, fn_constructor_kwargs)
        wanted = format_of(batch_format)
        made = []
        for group in self._groups():
            given = formatted(group, wanted)
            found = function(given, *(fn_args or ()), **(fn_kwargs or {}))
            if not isinstance(found, Mapping) and not hasattr(found, "columns"):
                raise InvalidConfig(
                    f"map_groups({name_of(function)}) returned a {type(found).__name__}: return a "
                    f"dict of arrays, a DataFrame or a pyarrow.Table"
                )
            made.append(as_arrow(found))
        if not made:
            raise InvalidConfig("map_groups() of a dataset without rows")
        return self._dataset.over_table(concatenated(made))

    def _groups(self) -> list[Any]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._dataset.to_arrow()
        if not self._keys or not table.num_rows:
            return [table] if table.num_rows else []
        order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in self._keys])
        table = table.take(order).combine_chunks()
        changes = np.zeros(table.num_rows - 1, bool)
        for key in self._keys:
            codes = table.column(key).combine_chunks()
            if isinstance(codes, pa.ChunkedArray):
                codes = codes.chunk(0)
            if not pa.types.is_dictionary(codes.type):
                codes = codes.dictionary_encode(null_encoding="encode")
            numbers = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            changes |= numbers[1:] != numbers[:-1]
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
        return [table.slice(start, stop - start) for start, stop in pairwise(bounds)]

    def _columns(self, on: On) -> list[str]:
        if on is None:
            return numbers_of(self._dataset.schema(), self._keys)
        return [on] if isinstance(on, str) else list(on)

    def __repr__(self) -> str:
        return f"GroupedData({', '.join(self._keys)}; {self._dataset!r})"
