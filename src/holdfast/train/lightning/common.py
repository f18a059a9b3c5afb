"""Mixins that make Lightning's strategies, environments and callbacks those of a trial's rank.

They fit both of Lightning's packages, `lightning.pytorch` and `pytorch_lightning`, whose classes
do not mix: `home` is the module with the classes for the one that a script uses. Lightning is
imported there.
"""

from __future__ import annotations

import os
import signal
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from holdfast.experiment.worker.context import get_context, get_device, report, staging_directory
from holdfast.experiment.worker.session import running, tell
from holdfast.lazy import Framework
from holdfast.runtime import process_control
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.reporting import Metrics, by_name, check_metrics, say_nothing_reported
from holdfast.trial.errors import InvalidConfig

_HOMES = {
    "lightning.pytorch": "holdfast.train.lightning.with_lightning",
    "pytorch_lightning": "holdfast.train.lightning.with_pytorch_lightning",
}
_LIBRARIES = {
    "lightning.pytorch": Framework(title="Lightning", module="lightning", minimum="2.2"),
    "pytorch_lightning": Framework(
        title="PyTorch Lightning", module="pytorch_lightning", extra="lightning", minimum="2.2"
    ),
}

# Packages that only holdfast imported: they do not tell what the script uses.
_ours: set[str] = set()


@contextmanager
def for_us(package: str) -> Iterator[None]:
    """Surrounds holdfast's own imports from one of the two packages.

    Raises ImportError if it is missing, or too old.
    """
    _LIBRARIES[package].check()
    if package not in sys.modules:
        _ours.add(package)
    yield


def home() -> ModuleType:
    """Our classes for the package that this process has imported, or else could import.

    Raises ImportError if neither is installed.
    """
    found = _used() or [name for name in _HOMES if find_spec(name.partition(".")[0])]
    package = found[0] if found else "lightning.pytorch"
    _LIBRARIES[package].check()  # before an error about torch, which comes with it
    return import_module(_HOMES[package])


def _used() -> list[str]:
    return [name for name in _HOMES if name in sys.modules and name not in _ours]


class Fitting(ABCMeta):
    """Metaclass: creating an object uses the package that the script has imported by then.

    The class may have been imported before that package, and belong to the other one. Subclasses
    by users and unpickled objects stay as they are.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super(Fitting, _fitting(cls)).__call__(*args, **kwargs)


def _fitting(cls: type) -> Any:
    packages = [name for name, where in _HOMES.items() if where == cls.__module__]
    used = _used()
    if not packages or not used or packages[0] in used:
        return cls
    return getattr(import_module(_HOMES[used[0]]), cls.__name__)


def plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The logged metrics as plain numbers."""
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()
    }


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


Trainer = TypeVar("Trainer")


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Return the trainer after checking that it trains together with the other ranks.

    Raises InvalidConfig for a strategy that would train alone, or start its own processes;
    NotInTrial outside a trial.
    """
    strategy: Any = getattr(trainer, "strategy", None)
    ranks = get_context().get_world_size()
    if strategy is None:
        raise InvalidConfig(f"prepare_trainer() takes a Lightning Trainer, not {trainer!r:.100}")
    if ranks > 1 and not isinstance(strategy, AmongRanks):
        raise _alone(strategy, ranks)
    return trainer


def check_ranks(trainer: Any) -> None:
    """The same check for scripts that did not call `prepare_trainer`.

    Raises InvalidConfig.
    """
    ranks = 1 if running() is None else get_context().get_world_size()
    if ranks not in (1, trainer.world_size):
        raise _alone(trainer.strategy, ranks)


def _alone(strategy: Any, ranks: int) -> InvalidConfig:
    return InvalidConfig(
        f"Trainer(strategy={type(strategy).__name__}) of Lightning's does not know of the "
        f"{ranks} ranks of this trial: give it strategy=DDPStrategy(), FSDPStrategy() or "
        f"DeepSpeedStrategy() of holdfast.train.lightning"
    )


class EpochReport:
    """Reports `trainer.callback_metrics`, `epoch`, `step` and a checkpoint at the end of each
    training epoch.

    `trainer.save_checkpoint` writes the checkpoint as CHECKPOINT_NAME, which is a file, or a
    directory with sharded strategies. Give it to `trainer.fit(..., ckpt_path=...)` to resume. If
    the trial is preempted (SIGTERM), it also reports after the current batch, and the training
    resumes from there. `when_preempted=False` turns that off, and saves the ranks a message to
    each other in each step.
    """

    CHECKPOINT_NAME: ClassVar[str] = "checkpoint.ckpt"

    def __init__(self, *, when_preempted: bool = True) -> None:
        super().__init__()
        self._when_preempted = when_preempted

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Raises InvalidConfig if each rank would train alone."""
        check_ranks(trainer)
        keep_sigterm()

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        from holdfast.train.torch.loop import preemption_agreed

        if self._when_preempted and preemption_agreed():
            report_state(trainer, _metrics(trainer), self.CHECKPOINT_NAME)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        report_state(trainer, _metrics(trainer), self.CHECKPOINT_NAME)


def _metrics(trainer: Any) -> dict[str, Any]:
    counts = {"epoch": trainer.current_epoch, "step": trainer.global_step}
    return plain(trainer.callback_metrics) | counts


def report_state(trainer: Any, metrics: dict[str, Any], name: str) -> None:
    """Report with all that a resume needs; rank 0 reports what several ranks write."""
    staged = trainer.strategy.broadcast(staging_directory() if trainer.is_global_zero else None)
    trainer.save_checkpoint(os.path.join(staged, name))  # returns when all ranks have written
    is_uploader = trainer.is_global_zero
    report(metrics, checkpoint=Checkpoint.from_directory(staged) if is_uploader else None)


_PHASES = [
    f"{of}{part}" for of in ("train", "validation", "test") for part in ("", "_epoch", "_batch")
]
_HOOKS = tuple(
    f"{of}_{when}" for of in ("fit", "sanity_check", *_PHASES) for when in ("start", "end")
)


class HookReport:
    """Reports the metrics that Lightning has logged, at each call of `on_<on>`.

    `on` is the name of a hook, or several. `metrics` chooses what to report: a name, a list of
    names, `{name to report: Lightning's name}`, or None for all. A metric that is not logged yet
    is left out, with one warning in the trial's stderr. Lightning's sanity check reports nothing.

    Raises InvalidConfig if `on` is not a hook, or `metrics` not a choice of metrics.
    """

    def __init__(
        self, metrics: Metrics = None, on: str | Sequence[str] = "validation_end"
    ) -> None:
        super().__init__()
        check_metrics(metrics)
        self._metrics = by_name(metrics)
        self._told: set[str] = set()
        self._was_called = False
        hooks = [on] if isinstance(on, str) else list(on)
        self._hooks_of_fit = [f"on_{name}" for name in hooks if not name.startswith("test_")]
        for name in hooks:
            if name not in _HOOKS:
                raise InvalidConfig(f"on={name!r} is none of {', '.join(_HOOKS)}")
            self._hook(f"on_{name}")

    def report(self, trainer: Any) -> None:
        metrics = self._chosen(trainer.callback_metrics)
        if metrics:
            report(metrics)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        keep_sigterm()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Raises InvalidConfig if each rank would train alone."""
        check_ranks(trainer)
        keep_sigterm()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self._hooks_of_fit and not self._was_called:
            say_nothing_reported(
                f"Lightning has not called {' or '.join(self._hooks_of_fit)}. Is there a "
                f"val_dataloader, or should the callback have another on=...?"
            )

    def _hook(self, name: str) -> None:
        plainly: Callable[..., Any] = getattr(self, name)

        def hook(trainer: Any, *args: Any, **kwargs: Any) -> None:
            self._was_called |= not trainer.sanity_checking
            plainly(trainer, *args, **kwargs)
            if not trainer.sanity_checking:
                self.report(trainer)

        setattr(self, name, hook)

    def _chosen(self, logged: Mapping[str, Any]) -> dict[str, Any]:
        found = plain(logged)
        if self._metrics is None:
            return found
        for name in set(self._metrics.values()) - found.keys() - self._told:
            self._told.add(name)
            tell(
                f"holdfast: {name!r} is not reported: Lightning has logged "
                f"{', '.join(map(repr, sorted(found))) or 'nothing'} so far"
            )
        return {name: found[key] for name, key in self._metrics.items() if key in found}


class HookReportCheckpoint(HookReport):
    """Reports as `TuneReportCallback` does, and saves a checkpoint as `filename`.

    `trainer.save_checkpoint` writes it; give it to `trainer.fit(..., ckpt_path=...)` to resume.
    With `save_checkpoints=False` nothing is saved.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(metrics, on)
        self._filename = filename
        self._saves = save_checkpoints

    def report(self, trainer: Any) -> None:
        if not self._saves:
            super().report(trainer)
        elif metrics := self._chosen(trainer.callback_metrics):
            report_state(trainer, metrics, self._filename)
