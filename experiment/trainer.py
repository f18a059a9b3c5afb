"""Trainers: one training on several workers, as users write it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from holdfast.experiment.result import Result
from holdfast.experiment.train_loop import LOOP_CONFIG, BackendConfig, TrainLoop
from holdfast.experiment.tuner import Tuner
from holdfast.syncer.checkpoint import Checkpoint
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.scaling import ScalingConfig


class TrainingFailedError(TuneError, RuntimeError):
    """The training has ended with an error, the `__cause__`; the message says how to go on."""


class DataParallelTrainer:
    """Runs one function in `scaling_config.num_workers` processes at once, the ranks of a group.

    `train_loop_per_worker` takes `train_loop_config`, or nothing, and reports with
    `holdfast.train.report`, in every rank equally often. `resume_from_checkpoint` is what
    `get_checkpoint()` gives until there is one of this run.

    Raises InvalidConfig for settings that cannot mean anything.
    """

    _backend_type: ClassVar[type[BackendConfig]] = BackendConfig

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, kind in (
            ("train_loop_config", train_loop_config, Mapping),
            ("backend_config", backend_config, self._backend_type),
            ("scaling_config", scaling_config, ScalingConfig),
            ("run_config", run_config, RunConfig),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
            ("metadata", metadata, Mapping),
        ):
            if value is not None and not isinstance(value, kind):
                raise InvalidConfig(f"{name} must be a {kind.__name__}, not {value!r:.100}")
        self.run_config = run_config or RunConfig()
        self.metadata = dict(metadata or {})
        self.loop = TrainLoop(
            train_loop_per_worker,
            name=type(self).__name__,
            config=train_loop_config,
            backend=backend_config or self._backend_type(),
            scaling=scaling_config or ScalingConfig(),
            start=resume_from_checkpoint,
        )
        self._tuner: Tuner | None = None

    def fit(self) -> Result:
        """Train to the end, and return what came of it.

        Raises TrainingFailedError where the training failed, and what `Tuner.fit` raises before it
        begins.
        """
        tuner = self._tuner or Tuner(
            self.loop,
            param_space={LOOP_CONFIG: self.loop.config},
            run_config=self.run_config,
        )
        results = tuner.fit()
        (result,) = results
        if result.error is not None:
            path = results.experiment_path
            raise TrainingFailedError(
                f"the training has failed: {result.error}\n"
                f"What it has kept is in {result.path}. To go on from its newest checkpoint: "
                f"{type(self).__name__}.restore({path!r}, ...).fit(). To have it tried again by "
                f"itself: RunConfig(failure_config=FailureConfig(max_failures=...))"
            ) from result.error
        return result

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether there is a training at `path` that `restore` could take up.

        Raises StorageError if the storage does not answer.
        """
        return Tuner.can_restore(path, storage_filesystem)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: Mapping[str, Any] | None = None,
        *,
        storage_filesystem: Any = None,
        scaling_config: ScalingConfig | None = None,
    ) -> Self:
        """A trainer whose `fit()` goes on with the training at `path` from its newest checkpoint.

        What is not given is as it was.

        Raises NothingToRestore, BrokenTunerFile, InvalidConfig.
        """
        tuner = Tuner.restore(path, resume_errored=True, storage_filesystem=storage_filesystem)
        loop = tuner.trainable
        if not isinstance(loop, TrainLoop) or loop.__name__ != cls.__name__:
            raise InvalidConfig(
                f"{os.fspath(path)} holds no training of a {cls.__name__}: restore it with what "
                f"began it"
            )
        changed = TrainLoop(
            train_loop_per_worker or loop.function,
            name=cls.__name__,
            config=loop.config if train_loop_config is None else train_loop_config,
            backend=loop.backend,
            scaling=scaling_config or loop.scaling,
            start=loop.start,
        )
        trainer = cls.__new__(cls)
        trainer.loop, trainer.metadata = changed, {}
        trainer._tuner = tuner.with_trainable(changed)
        return trainer
