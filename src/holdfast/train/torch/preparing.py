"""Making a script's own model, data and optimizer those of one rank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from holdfast.experiment.context import get_context
from holdfast.trial.errors import InvalidConfig


def get_devices() -> list[torch.device]:
    """The devices of this rank: its GPUs, or the CPU where it has none."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return [torch.device("cpu")]
    return [torch.device("cuda", index) for index in range(count)]


def get_device() -> torch.device:
    """The device that this rank's model and data belong on."""
    return get_devices()[0]


def enable_reproducibility(seed: int = 0) -> None:
    """Seed the generators of Python, NumPy and torch, and have torch choose deterministic ways."""
    import random

    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if "numpy" in __import__("sys").modules:
        import numpy

        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """The model on this rank's device, in DistributedDataParallel (`ddp`) or
    FullyShardedDataParallel (`fsdp`) where there are several ranks.

    Raises InvalidConfig for another strategy.
    """
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise InvalidConfig(
            f"prepare_model(parallel_strategy={parallel_strategy!r}) must be 'ddp', 'fsdp' or None"
        )
    device = get_device() if move_to_device is True else move_to_device
    if isinstance(device, torch.device):
        if device.type == "cuda":
            torch.cuda.set_device(device)
        model = model.to(device)
    if parallel_strategy is None or get_context().get_world_size() == 1:
        return model
    wishes = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, **wishes)
    if isinstance(device, torch.device) and device.type == "cuda":
        wishes = {"device_ids": [device], "output_device": device} | wishes
    return DistributedDataParallel(model, **wishes)


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer as it is: what mixed precision needs is torch's own `GradScaler`."""
    return optimizer


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> Any:
    """The loader with each rank's share of the data, on its device.

    A sampler is added where there are several ranks and the loader has torch's own random or
    sequential one; with it, call `loader.sampler.set_epoch(epoch)` in each epoch, as in torch.
    With a GPU `auto_transfer` copies the next batch while this one is used.

    Raises InvalidConfig for a loader whose sampler would have to be replaced.
    """
    context = get_context()
    loader: Any = data_loader
    if add_dist_sampler and context.get_world_size() > 1:
        loader = _shared_out(loader, context.get_world_rank(), context.get_world_size())
    device = get_device()
    if not move_to_device or device.type == "cpu":
        return loader
    return OnDevice(loader, device, ahead=auto_transfer)


def _shared_out(loader: Any, rank: int, ranks: int) -> Any:
    if isinstance(loader.sampler, DistributedSampler) or isinstance(
        loader.dataset, IterableDataset
    ):
        return loader
    if type(loader.sampler) not in (RandomSampler, SequentialSampler):
        raise InvalidConfig(
            f"prepare_data_loader cannot share out the data of a loader with a sampler of its own "
            f"({type(loader.sampler).__name__}): give each rank its share there, and "
            f"add_dist_sampler=False here"
        )
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        raise InvalidConfig(
            "prepare_data_loader cannot share out the data of a loader with a batch_sampler of "
            "its own: give each rank its share there, and add_dist_sampler=False here"
        )
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset,
        num_replicas=ranks,
        rank=rank,
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=loader.drop_last,
    )
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        pin_memory_device=loader.pin_memory_device,
    )


class OnDevice:
    """A loader whose batches come on a device; everything else is the loader's."""

    def __init__(self, loader: Any, device: torch.device, *, ahead: bool) -> None:
        self._loader = loader
        self._device = device
        self._ahead = ahead

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        if not self._ahead or self._device.type != "cuda":
            for batch in self._loader:
                yield moved(batch, self._device)
            return
        stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        ready = None
        for batch in self._loader:
            with torch.cuda.stream(stream):
                coming = moved(batch, self._device)
            if ready is not None:
                yield ready
            torch.cuda.current_stream(self._device).wait_stream(stream)
            _record(coming, torch.cuda.current_stream(self._device))
            ready = coming
        if ready is not None:
            yield ready


def moved(batch: Any, device: torch.device) -> Any:
    """The same, nested as it is, with its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(value, device) for value in batch)
    return batch


def _record(batch: Any, stream: Any) -> None:
    """The memory of these tensors is not free before this stream has used them."""
    if isinstance(batch, torch.Tensor):
        batch.record_stream(stream)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            _record(value, stream)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            _record(value, stream)
