"""For training loops of torch: models, optimizers and loaders prepared for a rank, notices of
preemption, and checkpoints of a model alone."""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.nn.parallel import DistributedDataParallel
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
from holdfast.experiment.worker.session import running
from holdfast.train.reporting import ModelCheckpoint
from holdfast.trial.errors import InvalidConfig

# The gradient scaler of this process, from `accelerate` on: it keeps small gradients above zero.
_scaler: torch.amp.GradScaler | None = None


def enable_reproducibility(seed: int = 0) -> None:
    """Seed the generators of Python, NumPy and torch, and let torch use deterministic
    algorithms."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def accelerate(amp: bool = False) -> None:
    """Train what is prepared from now on with mixed precision, if `amp` is set.

    Then `prepare_optimizer` and `backward` are needed too. Without a GPU the model computes in
    bfloat16, which needs no scaling of losses.
    """
    global _scaler
    on_gpu = get_device().type == "cuda"
    _scaler = torch.amp.GradScaler(get_device().type, enabled=on_gpu) if amp else None


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """The model on this rank's device, wrapped if there are several ranks.

    `move_to_device`: True for the rank's own device, False to leave the model where it is, or a
    device. `parallel_strategy`: "ddp" (DistributedDataParallel), "fsdp"
    (FullyShardedDataParallel), or None for the model as it is. `parallel_strategy_kwargs`:
    arguments for the wrapper's constructor.

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
    if _scaler is not None:
        _compute_in_half(model)
    if parallel_strategy is None or get_context().get_world_size() == 1:
        return model
    wishes = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FullyShardedDataParallel

        if not {"device_mesh", "process_group"} & wishes.keys():
            # With a mesh, shards are DTensors, which another number of ranks can load; the same
            # holds for the optimizer.
            ranks = (get_context().get_world_size(),)
            wishes["device_mesh"] = init_device_mesh(get_device().type, ranks)
        return FullyShardedDataParallel(model, **{"device_id": get_device()} | wishes)
    if isinstance(device, torch.device) and device.type == "cuda":
        wishes = {"device_ids": [device], "output_device": device} | wishes
    return DistributedDataParallel(model, **wishes)


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer; after `accelerate(amp=True)`, one that undoes the scaling of losses."""
    if _scaler is None:
        return optimizer
    scaler, step = _scaler, optimizer.step

    def scaled(closure: Callable[[], float] | None = None) -> float | None:
        if closure is not None:
            raise InvalidConfig("an optimizer with a closure cannot train with mixed precision")
        optimizer.step = step  # the scaler calls it
        try:
            taken: float | None = scaler.step(optimizer)
        finally:
            optimizer.step = scaled
        scaler.update()
        return taken

    optimizer.step = scaled
    return optimizer


def backward(tensor: torch.Tensor) -> None:
    """Compute the gradients of this loss, scaled after `accelerate(amp=True)`."""
    loss = tensor if _scaler is None else _scaler.scale(tensor)
    loss.backward()


def _compute_in_half(model: torch.nn.Module) -> None:
    """Let the model compute in half precision, in this process only: pickles and copies are
    unchanged."""
    forward, state, kind = model.forward, model.__getstate__, get_device().type

    def forward_in_half(*inputs: Any, **named: Any) -> Any:
        with torch.autocast(kind):
            return on_tensors(forward(*inputs, **named), _in_single)

    def state_without() -> Any:
        own = ("forward", "__getstate__")
        return {name: value for name, value in state().items() if name not in own}

    model.forward = forward_in_half
    model.__getstate__ = state_without


def _in_single(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in single precision, in which losses are computed."""
    return tensor.float() if tensor.is_floating_point() else tensor


def on_tensors(value: Any, act: Callable[[torch.Tensor], Any]) -> Any:
    """The value with `act` applied to its tensors, however they are nested."""
    if isinstance(value, torch.Tensor):
        return act(value)
    if isinstance(value, Mapping):
        return {key: on_tensors(part, act) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(on_tensors(part, act) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(on_tensors(part, act) for part in value)
    return value


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


# The default group, and the one to ask in it: of CPUs, so that it waits for no GPU.
_groups: list[Any] = []


def preemption_agreed() -> bool:
    """True if any rank is being preempted (SIGTERM); the same answer in all ranks.

    Signals reach ranks at different times, but a checkpoint needs all ranks at the same step. Each
    rank must call this equally often. A call takes 0.2 ms if two ranks share a machine, 0.5 ms if
    other processes keep it busy. False outside a trial.
    """
    if running() is None:
        return False
    is_preempted = get_context().preemption_requested()
    if get_context().get_world_size() == 1 or not dist.is_initialized():
        return is_preempted
    if _groups[:1] != [dist.group.WORLD]:  # the script may have replaced it
        own = None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        _groups[:] = [dist.group.WORLD, own]
    flag = torch.tensor([int(is_preempted)], dtype=torch.int32)
    dist.all_reduce(flag, dist.ReduceOp.MAX, group=_groups[1])
    return bool(flag.item())


_MODEL = "model.pt"


class TorchCheckpoint(ModelCheckpoint):
    """A checkpoint with a model, or its state dict, in `model.pt`.

    What `from_model` and `from_state_dict` make is in a temporary directory that is removed
    with the object.
    """

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any]) -> Self:
        """A checkpoint of a state dict, written with `torch.save`."""
        return cls._made(dict(state_dict))

    @classmethod
    def from_model(cls, model: torch.nn.Module) -> Self:
        """The whole model, pickled; of a DistributedDataParallel the module in it."""
        return cls._made(model.module if isinstance(model, DistributedDataParallel) else model)

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model; from a state dict, `model` with that state.

        A whole model is unpickled, which runs what its pickle says: load only your own.

        Raises InvalidConfig for a state dict without a `model`, StorageError for a checkpoint that
        cannot be read.
        """
        with self.as_directory() as directory:
            saved = _load(os.path.join(directory, _MODEL))
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise InvalidConfig(
                f"{self.path} holds a state dict: give get_model() the model to load it into"
            )
        consume_prefix_in_state_dict_if_present(saved, "module.")
        model.load_state_dict(saved)
        return model

    @classmethod
    def _made(cls, value: Any) -> Self:
        return cls.saved(_MODEL, lambda path: torch.save(value, path))


def _load(path: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return torch.load(path, map_location="cpu", weights_only=False)
