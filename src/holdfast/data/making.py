"""The functions that create datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.data.columns import table_of
from holdfast.data.dataset import Dataset
from holdfast.data.parquet import open_parquet
from holdfast.data.sources import TableSource
from holdfast.trial.errors import InvalidConfig

_SHOWN = 5


def from_items(items: Sequence[Any]) -> Dataset:
    """One row for each item: a dict of columns, or a value for the column "item".

    Arrays of one shape become tensors. Raises InvalidConfig for dicts with different keys, and for
    values that Arrow does not know.
    """
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise InvalidConfig(f"from_items() takes a list of items, not {items!r:.100}")
    items = list(items)
    if not items or not isinstance(items[0], Mapping):
        return _of(table_of({"item": items}))
    names = list(items[0])
    for at, item in enumerate(items):
        if not isinstance(item, Mapping) or set(item) != set(names):
            raise InvalidConfig(
                f"from_items(): item {at} is {item!r:.100}, but the first one has the columns "
                f"{names}: give each item the same keys, with None for missing values"
            )
    return _of(table_of({name: [item[name] for item in items] for name in names}))


def from_pandas(dfs: Any) -> Dataset:
    """The rows of a DataFrame, or of several in order. The index is left out."""
    import pyarrow as pa

    frames = _listed(dfs)
    for frame in frames:
        if not hasattr(frame, "iloc"):
            raise InvalidConfig(f"from_pandas() takes DataFrames, not a {type(frame).__name__}")
    tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in frames]
    return from_arrow([table.replace_schema_metadata() for table in tables])


def from_arrow(tables: Any) -> Dataset:
    """The rows of a pyarrow.Table, or of several in order.

    Raises InvalidConfig if their columns differ.
    """
    import pyarrow as pa

    given = _listed(tables)
    for table in given:
        if not isinstance(table, pa.Table):
            raise InvalidConfig(f"from_arrow() takes pyarrow.Tables, not a {type(table).__name__}")
    if not given:
        raise InvalidConfig("from_arrow() needs at least one table")
    try:
        return _of(pa.concat_tables(given))
    except pa.ArrowException as error:
        raise InvalidConfig(f"these tables have different columns: {error}") from error


def from_numpy(ndarrays: Any) -> Dataset:
    """One row for each item along the first axis, in the column "data". A list of arrays is
    concatenated; a dict gives a column for each.

    Raises InvalidConfig for columns of different lengths.
    """
    import numpy as np

    if isinstance(ndarrays, Mapping):
        return _of(table_of({name: np.asarray(array) for name, array in ndarrays.items()}))
    given = ndarrays if isinstance(ndarrays, list) else [ndarrays]
    arrays = [np.asarray(array) for array in given]
    try:
        return _of(table_of({"data": np.concatenate(arrays)}))
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in arrays[:_SHOWN]) or "none"
        raise InvalidConfig(
            f"from_numpy() cannot concatenate arrays of the shapes {shapes}: {error}"
        ) from error


def range(n: int) -> Dataset:  # noqa: A001 - as users know it
    """The numbers 0 to `n` - 1 in the column "id". Raises InvalidConfig."""
    import numpy as np

    if type(n) is not int or n < 0:
        raise InvalidConfig(f"range({n!r}) must be a number of rows")
    return _of(table_of({"id": np.arange(n)}))


def read_parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    filesystem: Any = None,
    columns: Sequence[str] | None = None,
) -> Dataset:
    """The rows of files, or of all files below directories, on this machine or at any URI.

    This reads only their footers. Folders named `key=value` become columns, too. Credentials in a
    URI stay in this process; a worker takes them from its environment.

    Raises DatasetGone for a missing path, InvalidConfig for an unknown column, InvalidLocation for
    an unknown URI.
    """
    return Dataset(source=open_parquet(paths, filesystem=filesystem, columns=columns))


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _of(table: Any) -> Dataset:
    """The dataset of a table, with one piece of memory for each column: batches are views."""
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"a dataset cannot have two columns named {name!r}")
    return Dataset(source=TableSource(table.combine_chunks()))


__all__ = ["from_arrow", "from_items", "from_numpy", "from_pandas", "range", "read_parquet"]
