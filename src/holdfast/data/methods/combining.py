"""Methods of a dataset that return one of several datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from holdfast.data.columns import plain
from holdfast.data.combined import chained, zipped
from holdfast.data.methods.whole import Whole
from holdfast.data.scheduling import without_scheduling
from holdfast.trial.errors import InvalidConfig

_JOINS: Final = {
    name: name.replace("_", " ")
    for name in (
        *("left_semi", "right_semi", "left_anti", "right_anti"),
        *("inner", "left_outer", "right_outer", "full_outer"),
    )
}
_LEFT, _RIGHT = "\0left", "\0right"


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


def joined(
    left: Any,
    right: Any,
    join_type: str,
    keys: Sequence[str],
    right_keys: Sequence[str],
    *,
    suffixes: tuple[str | None, str | None],
) -> Any:
    """The rows of a join in the order of the left table, then of the right.

    Arrow joins the keys and the numbers of the rows: of other columns it knows only some types.

    Raises InvalidConfig.
    """
    kind = _JOINS.get(join_type)
    if kind is None:
        raise InvalidConfig(f"join_type={join_type!r} must be one of {', '.join(sorted(_JOINS))}")
    pairs = _pairs(left, right, kind, keys, right_keys)
    if kind.startswith("left ") and not kind.endswith("outer"):
        return left.take(pairs.column(_LEFT))
    if kind.startswith("right ") and not kind.endswith("outer"):
        return right.take(pairs.column(_RIGHT))
    return _side_by_side(left, right, pairs, keys, right_keys, suffixes)


def _pairs(left: Any, right: Any, kind: str, keys: Sequence[str], others: Sequence[str]) -> Any:
    """The numbers of the rows that belong together."""
    import pyarrow as pa

    try:
        found = _keys(left, keys, _LEFT).join(
            _keys(right, others, _RIGHT),
            keys=[str(at) for at in range(len(keys))],
            join_type=kind,
            use_threads=False,
        )
    except pa.ArrowException as error:
        raise InvalidConfig(f"join() on {', '.join(keys)}: {error}") from error
    sides = [name for name in (_LEFT, _RIGHT) if name in found.column_names]
    return found.select(sides).sort_by([(name, "ascending") for name in sides])


def _keys(table: Any, keys: Sequence[str], row: str) -> Any:
    import numpy as np
    import pyarrow as pa

    columns = {str(at): plain(table.column(key)) for at, key in enumerate(keys)}
    return pa.table({**columns, row: np.arange(table.num_rows)})


def _side_by_side(
    left: Any,
    right: Any,
    pairs: Any,
    keys: Sequence[str],
    right_keys: Sequence[str],
    suffixes: tuple[str | None, str | None],
) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    of_left, of_right = left.take(pairs.column(_LEFT)), right.take(pairs.column(_RIGHT))
    own = [name for name in left.column_names if name not in keys]
    more = [name for name in right.column_names if name not in right_keys]
    found = {}
    for key, other in zip(keys, right_keys, strict=True):
        one, two = plain(of_left.column(key)), plain(of_right.column(other))
        found[key] = of_left.column(key) if not one.null_count else pc.coalesce(one, two)
    both = set(own) & set(more)
    columns = [(f"{name}{suffixes[0] or ''}" if name in both else name, of_left.column(name))
               for name in own]  # fmt: skip
    columns += [(f"{name}{suffixes[1] or ''}" if name in both else name, of_right.column(name))
                for name in more]  # fmt: skip
    for name, column in columns:
        if name in found:
            raise InvalidConfig(
                f"join(): both datasets have the column {name!r}: pass left_suffix= or "
                f"right_suffix=, or rename it before"
            )
        found[name] = column
    return pa.table(found)
