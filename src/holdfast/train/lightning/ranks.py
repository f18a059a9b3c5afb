"""Mixins that make Lightning strategies and environments those of one rank of a trial."""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar

from holdfast.experiment.worker.context import get_context, get_device
from holdfast.experiment.worker.session import running
from holdfast.runtime import process_control


class OfTrial:
    """For environments: the trial started the ranks, and knows their numbers."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    @staticmethod
    def detect() -> bool:
        return running() is not None

    def world_size(self) -> int:
        return get_context().get_world_size()

    def set_world_size(self, size: int) -> None:
        """Ignored: Lightning derives it from the devices of one process."""

    def global_rank(self) -> int:
        return get_context().get_world_rank()

    def set_global_rank(self, rank: int) -> None:
        """Ignored: Lightning derives it from the devices of one process."""

    def local_rank(self) -> int:
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        return get_context().get_node_rank()

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """The trial decides, whatever `Trainer(devices=..., num_nodes=...)` says."""

    def teardown(self) -> None:
        """The process group belongs to the trial, which may use it after `fit()`."""


class AmongRanks:
    """For strategies: the trial says the ranks, the device and the share of the data, and SIGTERM
    remains a notice to the trial."""

    environment_type: ClassVar[type[OfTrial]]
    _environment: Any = None

    @property
    def cluster_environment(self) -> Any:
        return self._environment

    @cluster_environment.setter
    def cluster_environment(self, given: Any) -> None:
        """An environment of Lightning's or the user's knows nothing of the trial: ignore it."""
        is_ours = given is None or isinstance(given, OfTrial)
        self._environment = given if is_ours else self.environment_type()

    @property
    def root_device(self) -> Any:
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}

    def barrier(self, *args: Any, **kwargs: Any) -> Any:
        """Lightning 2.6 waits here (`run-stage`) right after it has set its signal handlers."""
        keep_sigterm()
        return super().barrier(*args, **kwargs)  # type: ignore[misc]


class Sharded(AmongRanks):
    """For FSDP strategies: lets them run on CPUs too, to try a training out and in tests."""

    def _setup_model(self, model: Any) -> Any:
        """Lightning passes torch the index of a GPU; a CPU has none, which torch refuses."""
        known: Any = self
        setup = super()._setup_model  # type: ignore[misc]
        if self.root_device.type != "cpu":
            return setup(model)
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(
            model,
            cpu_offload=known.cpu_offload,
            mixed_precision=known.mixed_precision_config,
            sharding_strategy=known.sharding_strategy,
            device_id=self.root_device,
            **known.kwargs,
        )
        policy = known.kwargs.pop("auto_wrap_policy", None)  # already applied
        try:
            return setup(model)
        finally:
            if policy is not None:
                known.kwargs["auto_wrap_policy"] = policy


def keep_sigterm() -> None:
    """Remove Lightning's SIGTERM handler, which would start a broadcast at any point and end the
    training."""
    if running() is not None:
        process_control.restore_own_handler(signal.SIGTERM)
