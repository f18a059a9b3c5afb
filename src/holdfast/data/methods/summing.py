"""Methods of a dataset that reduce its rows to values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from holdfast.data.aggregate import AggregateFn, Max, Mean, Min, Std, Sum, numbers_of
from holdfast.data.columns import plain
from holdfast.data.methods.grouped import GroupedData, On
from holdfast.data.methods.whole import Whole


class Summing(Whole):
    """Aggregates; they read all rows once, and have the columns that they use in memory.

    An aggregate of one column is a value, of several a dict such as {"sum(x)": 1, "sum(y)": 2}.
    """

    def groupby(
        self, key: str | Sequence[str] | None, num_partitions: int | None = None
    ) -> GroupedData[Self]:
        """The rows in groups with the same values in these columns. Raises InvalidConfig."""
        return GroupedData(self, key)

    def aggregate(self, *aggs: AggregateFn) -> dict[str, Any]:
        """Several aggregates of `holdfast.data.aggregate`, by name. Raises InvalidConfig."""
        return dict(self.aggregated((), aggs).to_pylist()[0])

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The different values of a column, in the order in which they appear."""
        import pyarrow.compute as pc

        self.checked([column], f"unique({column!r})")
        found: dict[Any, None] = {}
        for table in self.tables():
            found |= dict.fromkeys(pc.unique(plain(table.column(column))).to_pylist())
        return [value for value in found if value is not None or not ignore_nulls]

    def sum(self, on: On = None, ignore_nulls: bool = True) -> Any:
        """The sums of columns, by default of all columns of numbers."""
        return self._values(on, lambda one: Sum(one, ignore_nulls))

    def min(self, on: On = None, ignore_nulls: bool = True) -> Any:
        """The least values of columns."""
        return self._values(on, lambda one: Min(one, ignore_nulls))

    def max(self, on: On = None, ignore_nulls: bool = True) -> Any:
        """The greatest values of columns."""
        return self._values(on, lambda one: Max(one, ignore_nulls))

    def mean(self, on: On = None, ignore_nulls: bool = True) -> Any:
        """The means of columns."""
        return self._values(on, lambda one: Mean(one, ignore_nulls))

    def std(self, on: On = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        """The standard deviations of columns."""
        return self._values(on, lambda one: Std(one, ddof, ignore_nulls))

    def _values(self, on: On, make: Callable[[str], AggregateFn]) -> Any:
        if on is None:
            on = numbers_of(self.schema())
        columns = [on] if isinstance(on, str) else list(on)
        found = self.aggregate(*map(make, columns))
        return next(iter(found.values())) if len(found) == 1 else found
