"""`TorchTrainer`, and the process group of the ranks of one trial."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

from holdfast.api.trainer import DataParallelTrainer
from holdfast.compat.advice import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_context, get_device
from holdfast.experiment.worker.train_loop import BackendConfig, DataConfig, Rank, ValidationConfig
from holdfast.lazy import TORCH
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.ports import interface_of
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.scaling import ScalingConfig

# How long a rank tries to reach rank 0, whose port is open by then.
_MEET_S = 60.0
# A retry of the trial is a new run to torch.
_NO_RESTARTS = {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0"}


@dataclass(unsafe_hash=True)
class TorchConfig(Assignable, BackendConfig):
    """The torch process group. `backend`: gloo, nccl or another of torch's; None means nccl with
    GPUs, and gloo without, or if ranks share a GPU, which NCCL refuses.

    `init_method` is accepted for scripts that pass it: either way the ranks meet at a free port.
    An operation of the group may take `timeout_s`. With `init_process_group=False` the loop calls
    `torch.distributed.init_process_group` itself, as a script for torchrun does, in the
    environment that torchrun sets.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800
    init_process_group: bool = True
    # The first step of any optimizer imports torch._dynamo, which takes 1.8 s of CPU.
    modules = ("torch.distributed", "torch._dynamo", "holdfast.train.torch.loop")

    def __post_init__(self) -> None:
        if self.init_method not in ("env", "tcp"):
            raise InvalidConfig(
                f"TorchConfig(init_method={self.init_method!r}) must be 'env' or 'tcp'"
            )
        TORCH.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises what torch raises."""
        import torch.distributed as dist

        has_own_gpu = rank.uses_gpu and not (rank.shares_gpu and rank.world_size > 1)
        backend = self.backend or ("nccl" if has_own_gpu else "gloo")
        timeout = timedelta(seconds=self.timeout_s)
        store = _store(rank, timeout)
        _tell_libraries(rank, store)
        if self.init_process_group:
            dist.init_process_group(
                backend, store=store, rank=rank.rank, world_size=rank.world_size, timeout=timeout
            )
        else:
            run_id = get_context().get_trial_id()
            os.environ.update(TORCHELASTIC_RUN_ID=run_id, ROLE_NAME="default", **_NO_RESTARTS)
        # A DDP model that outlives its group ends gloo's threads with the GIL, for which they may
        # wait (torch 2.13, pytorch/pytorch#56297). This reference outlives the model.
        held = dist.group.WORLD
        yield
        # Not after an error: the other ranks may be gone, and this process ends anyway.
        if dist.is_initialized():  # most scripts end with this call themselves
            dist.destroy_process_group()
        del held


def _store(rank: Rank, timeout: timedelta) -> Any:
    """Rank 0's store, on a port that the kernel chose, so that no other process can have it.

    Raises TuneError if this rank cannot reach it.
    """
    from torch.distributed import DistNetworkError, TCPStore

    is_first = rank.rank == 0
    host, _, port = (f"{rank.address}:0" if is_first else rank.meet("")).rpartition(":")
    # The store is open before the other ranks have its address.
    soon = min(timeout, timedelta(seconds=_MEET_S))
    terms = {"is_master": is_first, "timeout": soon, "wait_for_workers": False}
    try:
        store = TCPStore(host, int(port), rank.world_size, **terms)
    except DistNetworkError as error:
        raise TuneError(
            f"rank {rank.rank} on {socket.gethostname()} cannot reach rank 0 at {host} port "
            f"{port}. The nodes of a trial need connections to each other on all ports"
        ) from error
    store.set_timeout(timeout)
    if is_first:
        rank.meet(f"{host}:{store.port}")
    return store


def _tell_libraries(rank: Rank, store: Any) -> None:
    """The variables that torchrun sets, for libraries that read them."""
    os.environ.update(
        MASTER_ADDR=store.host,
        MASTER_PORT=str(store.port),
        RANK=str(rank.rank),
        WORLD_SIZE=str(rank.world_size),
        LOCAL_RANK=str(rank.local_rank),
        LOCAL_WORLD_SIZE=str(rank.local_world_size),
        GROUP_RANK=str(rank.node_rank),
        GROUP_WORLD_SIZE=str(rank.node_count),
        NODE_RANK=str(rank.node_rank),
        ROLE_RANK=str(rank.rank),
        ROLE_WORLD_SIZE=str(rank.world_size),
        # Libraries that join by these variables use this store instead of opening another.
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    os.environ.setdefault("ACCELERATE_TORCH_DEVICE", str(get_device()))
    if not rank.uses_gpu:
        # Without it, Accelerate, and so Transformers, takes a rank on CPUs for the only one.
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    interface = interface_of(rank.address)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if rank.node_count > 1:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


class TorchTrainer(DataParallelTrainer):
    """A DataParallelTrainer whose ranks form a torch process group (`torch_config`).

    For the other parameters see DataParallelTrainer.

    Raises InvalidConfig, and ImportError if PyTorch is not installed, or too old.
    """

    _backend_type: ClassVar[type[BackendConfig]] = TorchConfig

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        keep_all_metrics: bool = False,
        refuse_clashes: bool = False,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=torch_config,
            scaling_config=scaling_config,
            dataset_config=dataset_config,
            run_config=run_config,
            datasets=datasets,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            keep_all_metrics=keep_all_metrics,
            refuse_clashes=refuse_clashes,
        )
