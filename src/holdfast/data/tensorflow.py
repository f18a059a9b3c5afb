"""Batches as a dataset of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.data.errors import unknown_column
from holdfast.lazy import TENSORFLOW
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
