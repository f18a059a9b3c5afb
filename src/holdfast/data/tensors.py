"""Batches as tensors of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.data.errors import unknown_column
from holdfast.data.formats import as_arrays
from holdfast.lazy import TORCH
from holdfast.trial.errors import InvalidConfig


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
