"""Iteration over rows, which a dataset and a rank's part of one share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.data.order import Shuffle
from holdfast.data.rows import (
    as_arrays,
    check_batch_size,
    format_of,
    formatted,
    rows_in,
    unknown_column,
)
from holdfast.dataclass import dataclass
from holdfast.lazy import TENSORFLOW, TORCH
from holdfast.plain_numbers import made_of_numbers, takes_numbers
from holdfast.trial.errors import InvalidConfig

Columns = str | Sequence[str]


def to_tf(
    batches: Iterable[Mapping[str, Any]],
    schema: Any,
    features: Columns,
    labels: Columns,
    additional: Columns,
) -> Any:
    """The implementation of `Iterating.to_tf`. Raises InvalidConfig, ImportError."""
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(TENSORFLOW.missing("to_tf", error), name="tensorflow") from error
    groups = [features, labels, additional] if additional else [features, labels]
    specs = tuple(_spec(columns, schema) for columns in groups)

    def generate() -> Iterator[Any]:
        for batch in batches:
            yield tuple(_chosen(columns, batch) for columns in groups)

    made = tf.data.Dataset.from_generator(generate, output_signature=specs)
    # Each rank has its own rows; a strategy would split them again.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return made.with_options(options)


def _chosen(columns: Columns, batch: Mapping[str, Any]) -> Any:
    if isinstance(columns, str):
        return batch[columns]
    return {column: batch[column] for column in columns}


def _spec(columns: Columns, schema: Any) -> Any:
    if isinstance(columns, str):
        return _of_column(columns, schema)
    return {column: _of_column(column, schema) for column in columns}


def _of_column(column: str, schema: Any) -> Any:
    """The type of batches of this column, of any size."""
    import pyarrow as pa
    import tensorflow as tf

    if column not in schema.names:
        raise unknown_column(column, schema.names, "to_tf()")
    kind: Any = schema.field(column).type
    shape: tuple[int, ...] = ()
    if isinstance(kind, pa.FixedShapeTensorType):
        kind, shape = kind.value_type, tuple(kind.shape)
    elif pa.types.is_fixed_size_list(kind):
        kind, shape = kind.value_type, (kind.list_size,)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return tf.TensorSpec(shape=(None, *shape), dtype=tf.string)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidConfig(
            f"to_tf(): the column {column!r} cannot be a tensor: its values are {kind}. Convert "
            f"them to numbers with map_batches"
        )
    return tf.TensorSpec(shape=(None, *shape), dtype=tf.as_dtype(kind.to_pandas_dtype()))


def check_columns(dtypes: Iterable[str], names: Sequence[str]) -> None:
    """Raises InvalidConfig if `dtypes` names an unknown column."""
    for column in dtypes:
        if column not in names:
            raise unknown_column(column, names, "iter_torch_batches(dtypes=...)")


def to_tensors(
    batch: Any,
    *,
    dtypes: Any,
    device: Any,
    collate: Callable[[dict[str, Any]], Any] | None,
    pins: bool,
) -> Any:
    """A batch as tensors. Raises InvalidConfig for a column that cannot be a tensor."""
    arrays = as_arrays(batch)
    where = _device(device)
    if collate is not None:
        return _moved(collate(arrays), where)
    return {
        name: _placed(_tensor(name, array), _dtype(dtypes, name), where, pins)
        for name, array in arrays.items()
    }


def _tensor(name: str, array: Any) -> Any:
    import torch

    array = _even(array)
    try:
        # Views of the dataset's memory are copied: it may be mapped from a file.
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except TypeError as error:
        raise InvalidConfig(
            f"the column {name!r} cannot be a tensor: its values are {_told(array)}. Remove "
            f"it (map_batches), or pass a collate_fn that converts it"
        ) from error


def _even(array: Any) -> Any:
    """Lists of one length as an array with one more axis; other values unchanged."""
    import numpy as np

    if array.dtype != object or not array.ndim:
        return array
    items = [_even(np.asarray(item)) for item in array.reshape(-1)]
    shapes = {item.shape for item in items}
    return np.stack(items) if len(shapes) == 1 and shapes != {()} else array


def _told(array: Any) -> str:
    return "text, or lists of different lengths" if array.dtype == object else str(array.dtype)


def _placed(tensor: Any, dtype: Any, device: Any, pins: bool) -> Any:
    if device.type == "cpu" and dtype is None and not pins:
        return tensor
    if pins:
        tensor = tensor.pin_memory()
    return tensor.to(device=device, dtype=dtype, non_blocking=pins)


def _dtype(dtypes: Any, name: str) -> Any:
    return dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes


def _device(device: Any) -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ImportError(TORCH.missing("iter_torch_batches", error), name="torch") from error
    if device == "auto":
        from holdfast.experiment.worker.context import get_device

        return get_device()
    return torch.device(device if device is not None else "cpu")


def _moved(batch: Any, device: Any) -> Any:
    if device.type == "cpu":
        return batch
    if isinstance(batch, Mapping):
        return {name: _moved(value, device) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch


_ROWS_AT_ONCE = 256


@made_of_numbers
@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlan:
    """One pass over the rows.

    `made` converts a batch, after the dataset's functions, to the loop's value; with `row_by_row`
    the loop gets the items of that.

    Raises InvalidConfig.
    """

    batch_size: int | None
    made: Callable[[Any], Any]
    drop_last: bool = False
    row_by_row: bool = False
    prefetch: int = 1
    buffer: int | None = None
    seed: int | None = None
    is_light: bool = False

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size, or_none=True)
        if type(self.prefetch) is not int or self.prefetch < 0:
            raise InvalidConfig(f"prefetch_batches={self.prefetch!r} must be 0 or more")
        if self.buffer is not None and (type(self.buffer) is not int or self.buffer < 1):
            raise InvalidConfig(
                f"local_shuffle_buffer_size={self.buffer!r} must be a number of rows, or None"
            )
        if self.seed is not None and type(self.seed) is not int:
            raise InvalidConfig(
                f"local_shuffle_seed={self.seed!r} must be a whole number, or None"
            )

    def shuffle(self, of_all: Shuffle | None) -> Shuffle | None:
        """The dataset's shuffling, or one within the loop's own window."""
        if of_all is not None or self.buffer is None:
            return of_all
        return Shuffle(seed=abs(self.seed or 0), window=self.buffer)


class Passes:
    """An iterable that starts one pass for each `for`."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class Iterating(ABC):
    """Iterable by rows and by batches."""

    @abstractmethod
    def passes(self, plan: PassPlan) -> Iterable[Any]:
        """The result of the `iter_` methods: each `iter()` of it reads the rows again."""

    @abstractmethod
    def schema(self) -> Any:
        """A pyarrow.Schema: `names` and `types` of the columns."""

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Each row as a dict of Python values: lists for lists, and arrays for arrays."""
        return self.passes(
            PassPlan(batch_size=_ROWS_AT_ONCE, made=rows_in, row_by_row=True, prefetch=0)
        )

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Batches of `batch_size` rows, the last one smaller; with None one per block.

        `batch_format`: "numpy" (a dict of arrays, read-only if they are views of the data; the
        default), "pandas" or "pyarrow". A thread prepares `prefetch_batches` ahead if that takes
        time. `local_shuffle_buffer_size` shuffles rows within windows of that many rows in each
        epoch, after `random_shuffle` of the dataset.

        Raises InvalidConfig; DatasetGone when it reaches a missing file.
        """
        made = partial(formatted, wanted=format_of(batch_format))
        plan = PassPlan(
            batch_size=batch_size,
            made=made,
            drop_last=drop_last,
            prefetch=prefetch_batches,
            buffer=local_shuffle_buffer_size,
            seed=local_shuffle_seed,
            is_light=True,
        )
        return self.passes(plan)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[dict[str, Any]], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Like `iter_batches`, with a dict of tensors, or the result of `collate_fn` for the
        arrays.

        `dtypes`: a torch dtype, or one for each column whose type should change. `device`: "auto"
        is the rank's own. The tensors are copies, so a loop may write to them.

        Raises InvalidConfig like `iter_batches`, and for an unknown column or one that cannot be a
        tensor; ImportError if PyTorch is not installed.
        """
        from holdfast.data.iterator import check_columns, to_tensors

        if collate_fn is not None and dtypes is not None:
            raise InvalidConfig("a collate_fn makes its own tensors: omit dtypes")
        if isinstance(dtypes, Mapping):
            check_columns(dtypes, self.schema().names)
        made = partial(
            to_tensors,
            dtypes=dtypes,
            device=device,
            collate=collate_fn,
            pins=pin_memory,
        )
        plan = PassPlan(
            batch_size=batch_size,
            made=made,
            drop_last=drop_last,
            prefetch=prefetch_batches,
            buffer=local_shuffle_buffer_size,
            seed=local_shuffle_seed,
            is_light=collate_fn is None,
        )
        return self.passes(plan)

    @takes_numbers
    def to_tf(
        self,
        feature_columns: str | Sequence[str],
        label_columns: str | Sequence[str],
        *,
        additional_columns: str | Sequence[str] = (),
        prefetch_batches: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Any:
        """A tf.data.Dataset of (features, labels) in batches; with `additional_columns` of three.

        One name gives a tensor, a list of names a dict of tensors. The rows are only this rank's,
        and the dataset's options keep TensorFlow from splitting them again.

        Raises InvalidConfig for an unknown column or one that cannot be a tensor; ImportError if
        TensorFlow is not installed.
        """
        from holdfast.data.iterator import to_tf

        check_batch_size(batch_size)
        batches = self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )
        return to_tf(batches, self.schema(), feature_columns, label_columns, additional_columns)
