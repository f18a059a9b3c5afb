"""Methods of a dataset that return one of several datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from holdfast.data.combined import chained, zipped
from holdfast.data.methods.joining import joined
from holdfast.data.methods.whole import Whole
from holdfast.data.scheduling import without_scheduling


class Combining(Whole):
    """Datasets end to end, side by side, and joined by keys."""

    def union(self, *other: Self) -> Self:
        """The rows of this dataset, then those of the others.

        Raises InvalidConfig if their columns differ.
        """
        return self.over(chained([one.settled() for one in (self, *other)]))

    def zip(self, *other: Self) -> Self:
        """The columns of all datasets side by side, row by row in stored order; a name that is
        there already gets "_1".

        Raises InvalidConfig for different numbers of rows.
        """
        found = self.settled()
        for one in other:
            found = zipped(found, one.settled())
        return self.over(found)

    @without_scheduling
    def join(
        self,
        ds: Self,
        join_type: str,
        num_partitions: int | None = None,
        on: str | Sequence[str] = ("id",),
        right_on: str | Sequence[str] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: object = None,
        validate_schemas: bool = False,
        **ray_remote_args: Any,
    ) -> Self:
        """The rows of both datasets that have the same values in the columns `on`.

        `join_type`: "inner", "left_outer", "right_outer", "full_outer", or "left_semi",
        "left_anti", "right_semi", "right_anti" for the rows of one side that have a match, or
        none. Columns that both sides have get the suffixes. The rows come in the order of the
        left side, then of the right. Both datasets are in memory.

        Raises InvalidConfig.
        """
        keys = [on] if isinstance(on, str) else list(on)
        others = (
            keys if right_on is None else [right_on] if isinstance(right_on, str) else right_on
        )
        self.checked(keys, f"join(on={keys!r})")
        ds.checked(list(others), f"join() of the other dataset on {list(others)!r}")
        table = joined(
            self.to_arrow(),
            ds.to_arrow(),
            join_type,
            keys,
            list(others),
            suffixes=(left_suffix, right_suffix),
        )
        return self.over_table(table)
