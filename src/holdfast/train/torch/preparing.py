"""Prepares a script's model and optimizer for one rank of a trial."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from holdfast.experiment.worker.context import get_context, get_device
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
