"""Arrow columns as NumPy arrays and back, without a copy if possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.trial.errors import InvalidConfig

# Says of a column of lists that its rows were arrays, of unequal shapes.
ARRAYS: Final = {"holdfast": "arrays"}


def view_of(column: Any) -> Any:
    """A ChunkedArray of one chunk as a read-only array of the same memory.

    None if it has missing values, or types that NumPy only has as objects. Booleans, which Arrow
    packs into bits, are unpacked.
    """
    import pyarrow as pa

    if column.null_count or column.num_chunks != 1:
        return None
    chunk, kind = column.chunk(0), column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return None if chunk.storage.flatten().null_count else chunk.to_numpy_ndarray()
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        flat = chunk.flatten()
        return None if flat.null_count else flat.to_numpy().reshape(len(chunk), kind.list_size)
    if pa.types.is_boolean(kind):
        return chunk.to_numpy(zero_copy_only=False)
    return chunk.to_numpy() if _is_number(kind) or pa.types.is_timestamp(kind) else None


def array_of(column: Any) -> Any:
    """Any ChunkedArray as an array: of numbers if it holds numbers, with NaN for missing values.

    Tensors have their shape, texts and lists of varying lengths are objects.
    """
    import numpy as np
    import pyarrow as pa

    if column.num_chunks == 1:
        found = view_of(column)
        if found is not None:
            return found
    if isinstance(column.type, (pa.FixedShapeTensorType, pa.FixedSizeListType)):
        views = [view_of(pa.chunked_array([chunk])) for chunk in column.chunks]
        if views and all(view is not None for view in views):
            return np.concatenate(views)
    if is_list(column.type) and is_list(column.type.value_type):
        return stacked([even(value) for value in column.to_pylist()])
    return column.to_numpy(zero_copy_only=False)


def is_list(kind: Any) -> bool:
    import pyarrow as pa

    return any(is_one(kind) for is_one in (pa.types.is_list, pa.types.is_large_list))


def even(values: Any) -> Any:
    """An array of the values, or one of objects if they have unequal lengths."""
    import numpy as np

    try:
        return np.asarray(values)
    except ValueError:
        return stacked([even(value) for value in values])


def stacked(arrays: list[Any]) -> Any:
    """Arrays of one shape and type as one array, and others as an array of objects."""
    import numpy as np

    if len({(array.shape, array.dtype) for array in arrays}) == 1:
        return np.stack(arrays)
    found = np.empty(len(arrays), dtype=object)
    for at, array in enumerate(arrays):
        found[at] = array
    return found


def plain(column: Any) -> Any:
    """The values of a column of categories; any other column unchanged."""
    import pyarrow as pa

    is_category = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_category else column


def replaced(table: Any, name: str, column: Any) -> Any:
    """The table with this column, in its place if there is one of the name."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def table_of(columns: Mapping[str, Any]) -> Any:
    """A table of columns that are arrays or lists; arrays of more axes become tensors.

    Raises InvalidConfig for columns of different lengths or of types that Arrow does not know.
    """
    import pyarrow as pa

    made = {str(name): _arrow(str(name), values) for name, values in columns.items()}
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in lengths.items())
        raise InvalidConfig(f"the columns of a dataset must have the same length, not {listed}")
    fields = [
        pa.field(name, column.type, metadata=ARRAYS if _are_arrays(values) else None)
        for (name, column), values in zip(made.items(), columns.values(), strict=True)
    ]
    return pa.table(list(made.values()), schema=pa.schema(fields))


def frame_table(frame: Any) -> Any:
    """The table of a DataFrame. Columns whose cells are arrays are those of `table_of`."""
    import pyarrow as pa

    names = frame.columns if frame.columns.is_unique else ()
    own = {name: list(frame[name]) for name in names if _are_arrays(frame[name])}
    table = pa.Table.from_pandas(frame.drop(columns=list(own)), preserve_index=False)
    if not own:
        return table
    made = table_of(own)
    found = {str(name): made if name in own else table for name in names}
    return pa.table(
        [each.column(name) for name, each in found.items()],
        schema=pa.schema([each.field(name) for name, each in found.items()]),
    )


def _are_arrays(values: Any) -> bool:
    """True for a column of objects, each of which is an array."""
    is_column = isinstance(values, (list, tuple)) or str(getattr(values, "dtype", "")) == "object"
    return is_column and len(values) > 0 and all(getattr(one, "ndim", 0) for one in values)


def _arrow(name: str, values: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    is_array = isinstance(values, np.ndarray) and values.dtype != object
    items = values if is_array else _stacked(list(values))
    try:
        if isinstance(items, np.ndarray) and items.ndim > 1:
            return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(items))
        return pa.array(items)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidConfig(f"a dataset cannot have the column {name!r}: {error}") from error


def _stacked(items: list[Any]) -> Any:
    """One array from arrays of one shape; any other list unchanged."""
    import numpy as np

    if not items or not all(hasattr(item, "__array__") for item in items):
        return items
    arrays = [np.asarray(item) for item in items]
    kinds = {(array.shape, array.dtype) for array in arrays}
    return np.stack(arrays) if len(kinds) == 1 else [array.tolist() for array in arrays]


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
