"""Splits the samples of a loader among the ranks, and resumes in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_context, get_device
from holdfast.train.torch.preparing import on_tensors
from holdfast.trial.errors import InvalidConfig


class DealingSampler(DistributedSampler[Any]):
    """Gives the samples of an epoch to the ranks in turn, like cards.

    The order of an epoch depends only on `seed` and the epoch. After `load_state_dict`, the rest
    of that epoch is split among the current ranks, which may be more or fewer than before; no
    sample of it is repeated. At the end of an epoch the first samples of the rest are repeated, so
    that each rank gets equally many; with `drop_last`, the last ones are left out instead.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        rank: int,
        ranks: int,
        shuffle: bool,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(
            dataset,
            num_replicas=ranks,
            rank=rank,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )
        self._count = len(dataset)
        self._taken = self._left_off_at = 0

    def __iter__(self) -> Iterator[int]:
        """Continue, once, where `load_state_dict` says; otherwise start at the beginning of the
        epoch."""
        self._taken, self._left_off_at = self._left_off_at, 0
        left = self._order()[self._taken :]
        each = len(left) // self.num_replicas
        if each * self.num_replicas < len(left) and not self.drop_last:
            each += 1
        places = range(self.rank, each * self.num_replicas, self.num_replicas)
        return iter([left[place % len(left)] for place in places])

    def took(self, samples: int) -> None:
        """Count samples that each rank has got."""
        self._taken = min(self._taken + samples * self.num_replicas, self._count)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._taken = self._left_off_at = 0
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """The epoch, and the number of its samples that all ranks together have got."""
        return {"epoch": self.epoch, "taken": self._taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.set_epoch(state["epoch"])
        self._taken = self._left_off_at = state["taken"]

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self._count))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(self._count, generator=generator).tolist()


class DealtLoader(DataLoader[Any]):
    """A loader with a rank's share of the samples, which can resume in the middle of an epoch.

    Store `state_dict()` in a checkpoint together with the model's: it counts the batches that the
    loop has got, without those fetched ahead.
    """

    sampler: DealingSampler
    moves: _Moves | None = None

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        for batch in batches if self.moves is None else self.moves.through(batches):
            self.sampler.took(self.batch_size or 1)
            yield batch

    def state_dict(self) -> dict[str, int]:
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue at the state in the next `for` over this loader."""
        self.sampler.load_state_dict(state)


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> Any:
    """`data_loader` with this rank's share of the samples, on its device.

    Without `add_dist_sampler` each rank reads all samples; without `move_to_device` batches stay
    where the loader creates them.

    A loader with torch's own random or sequential order becomes a DealtLoader; call
    `loader.sampler.set_epoch(epoch)` in each epoch, as in torch. A loader with a
    DistributedSampler, or over an IterableDataset, splits its samples itself. With a GPU,
    `auto_transfer` copies the next batch while this one is used.

    Raises InvalidConfig for a loader whose sampler would have to be replaced.
    """
    loader = _dealt(data_loader) if add_dist_sampler else data_loader
    device = get_device()
    if not move_to_device or device.type == "cpu":
        return loader
    moves = _Moves(device=device, ahead=auto_transfer)
    if not isinstance(loader, DealtLoader):
        return OnDevice(loader, moves)
    loader.moves = moves
    return loader


def _dealt(loader: DataLoader[Any]) -> DataLoader[Any]:
    if isinstance(loader.dataset, IterableDataset):
        return loader
    batches = loader.batch_sampler
    # The loader's own attributes do not repeat those of its `batch_sampler`.
    source = batches if type(batches) is BatchSampler else loader
    sampler = source.sampler
    if isinstance(sampler, DistributedSampler):
        return loader
    if batches is not None and source is loader:
        raise _owned(f"custom batch_sampler ({type(batches).__name__})")
    is_random = type(sampler) is RandomSampler and not sampler.replacement
    if is_random and len(sampler) != len(loader.dataset):
        is_random = False
    if not is_random and type(sampler) is not SequentialSampler:
        raise _owned(f"custom sampler ({type(sampler).__name__})")
    context = get_context()
    dealing = DealingSampler(
        loader.dataset,
        rank=context.get_world_rank(),
        ranks=context.get_world_size(),
        shuffle=is_random,
        seed=loader.generator.initial_seed() if loader.generator is not None else 0,
        drop_last=source.drop_last,
    )
    return DealtLoader(
        loader.dataset,
        batch_size=source.batch_size,
        sampler=dealing,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=source.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        pin_memory_device=loader.pin_memory_device,
    )


def _owned(what: str) -> InvalidConfig:
    return InvalidConfig(
        f"prepare_data_loader cannot split the samples of a loader with a {what}: give each "
        f"rank its share there, and pass add_dist_sampler=False here"
    )


class OnDevice:
    """A loader whose batches are on a device; all other attributes are the loader's."""

    def __init__(self, loader: Any, moves: _Moves) -> None:
        self._loader = loader
        self._moves = moves

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        return self._moves.through(iter(self._loader))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """Copies batches to a device; with `ahead`, each while the one before it is used."""

    device: torch.device
    ahead: bool

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        if not self.ahead or self.device.type != "cuda":
            for batch in batches:
                yield moved(batch, self.device)
            return
        stream: Any = torch.cuda.Stream(self.device)
        ready = None
        for batch in batches:
            with torch.cuda.stream(stream):
                coming = moved(batch, self.device)
            if ready is not None:
                yield ready
            torch.cuda.current_stream(self.device).wait_stream(stream)
            _record(coming, torch.cuda.current_stream(self.device))
            ready = coming
        if ready is not None:
            yield ready


def moved(batch: Any, device: torch.device) -> Any:
    return on_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _record(batch: Any, stream: Any) -> None:
    """Keep the memory of these tensors until this stream has used them."""
    on_tensors(batch, lambda tensor: tensor.record_stream(stream))
