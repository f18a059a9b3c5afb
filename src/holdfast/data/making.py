"""The functions that create datasets of objects in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.data.columns import frame_table, stacked, table_of
from holdfast.data.dataset import Dataset
from holdfast.data.formats import NUMPY, Mapped
from holdfast.data.scheduling import without_scheduling
from holdfast.data.sources import TableSource
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

_SHOWN = 5


@without_scheduling
def from_items(items: Sequence[Any], **ray_remote_args: Any) -> Dataset:
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


@without_scheduling
def from_pandas(dfs: Any, **ray_remote_args: Any) -> Dataset:
    """The rows of a DataFrame, or of several in order. The index is left out."""
    frames = _listed(dfs)
    for frame in frames:
        if not hasattr(frame, "iloc"):
            raise InvalidConfig(f"from_pandas() takes DataFrames, not a {type(frame).__name__}")
    tables = [frame_table(frame) for frame in frames]
    return from_arrow([table.replace_schema_metadata() for table in tables])


@without_scheduling
def from_arrow(tables: Any, **ray_remote_args: Any) -> Dataset:
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


@without_scheduling
def range(n: int, **ray_remote_args: Any) -> Dataset:  # noqa: A001 - as users know it
    """The numbers 0 to `n` - 1 in the column "id". Raises InvalidConfig."""
    import numpy as np

    if type(n) is not int or n < 0:
        raise InvalidConfig(f"range({n!r}) must be a number of rows")
    return _of(table_of({"id": np.arange(n)}))


@without_scheduling
def range_tensor(n: int, *, shape: tuple[int, ...] = (1,), **ray_remote_args: Any) -> Dataset:
    """`n` tensors of this shape in the column "data"; the i-th is full of i."""
    import numpy as np

    if type(n) is not int or n < 0:
        raise InvalidConfig(f"range_tensor({n!r}) must be a number of rows")
    ones = np.ones((n, *shape), dtype=np.int64)
    return _of(table_of({"data": ones * np.arange(n).reshape(n, *[1] * len(shape))}))


@without_scheduling
def from_huggingface(dataset: Any, **ray_remote_args: Any) -> Dataset:
    """The rows of a dataset of Hugging Face `datasets`, in memory or mapped from its file.

    Raises InvalidConfig for several splits, and for other objects.
    """
    import pyarrow as pa

    if isinstance(dataset, Mapping):
        raise InvalidConfig(
            f"from_huggingface() takes one split: dataset[name], with one of "
            f"{', '.join(map(repr, dataset))}"
        )
    if not hasattr(dataset, "with_format"):
        raise InvalidConfig(
            f"from_huggingface() takes a dataset of Hugging Face, not a {type(dataset).__name__}"
        )
    rows = dataset.with_format("arrow")
    tables = [rows[:]] if hasattr(rows, "__len__") else list(rows.iter(batch_size=1000))
    return from_arrow(pa.concat_tables(tables).replace_schema_metadata())


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """A row for each item of a torch Dataset, in the column "item".

    A dataset with a length is read item by item when rows are needed; the items of others are in
    memory. Items that are tensors of one shape become tensors; pairs stay pairs, for `map` or
    `map_batches`.

    Raises InvalidConfig for an object that has no items.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        if not isinstance(dataset, Iterable):
            raise InvalidConfig(f"from_torch() takes a Dataset, not a {type(dataset).__name__}")
        dataset = list(dataset)
    items = Mapped(function=Items(dataset=dataset), batch_size=None, batch_format=NUMPY)
    return replace(range(len(dataset)), maps=(items,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A function of batches that replaces the numbers of items by the items."""

    dataset: Any

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        import numpy as np

        items = [self.dataset[int(number)] for number in batch["id"]]
        if all(hasattr(item, "__array__") for item in items):
            return {"item": stacked([np.asarray(item) for item in items])}
        if all(isinstance(item, (bool, int, float, str)) for item in items):
            return {"item": np.array(items)}
        found = np.empty(len(items), dtype=object)
        for at, item in enumerate(items):
            found[at] = item
        return {"item": found}


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _of(table: Any) -> Dataset:
    """The dataset of a table, with one piece of memory for each column: batches are views."""
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"a dataset cannot have two columns named {name!r}")
    return Dataset(source=TableSource(table.combine_chunks()))
