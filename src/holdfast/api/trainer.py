"""Trainers: one training on several workers, as users write it, its errors, and `train.load`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from holdfast.api.tuner import Tuner
from holdfast.compat import ray_path
from holdfast.compat.advice import checked, explains_keywords
from holdfast.experiment.folder.shell import resume_command
from holdfast.experiment.progress.views import in_notebook
from holdfast.experiment.user_objects.tuner_file import NotTrusted
from holdfast.experiment.worker.job import GroupTerms
from holdfast.experiment.worker.rank_session import PreemptionInfo
from holdfast.experiment.worker.train_loop import (
    BackendConfig,
    DataConfig,
    TrainLoop,
    ValidationConfig,
)
from holdfast.results.result import Result
from holdfast.results.short_errors import short_errors
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import ResumeConfig, RunConfig
from holdfast.trial.errors import InvalidConfig, TrialError, TuneError
from holdfast.trial.scaling import ScalingConfig


class TrainingFailedError(TuneError, RuntimeError):
    """The training ended with an error, the `__cause__`. The message says how to resume it."""


class WorkerGroupError(TrainingFailedError):
    """A worker failed. `worker_failures` has its error by its rank; the text of that error has
    those of other ranks, too."""

    def __init__(self, error_message: str, worker_failures: Mapping[int, Exception]) -> None:
        super().__init__(error_message)
        self.worker_failures = dict(worker_failures)

    def __reduce__(self) -> tuple[type[WorkerGroupError], tuple[str, dict[int, Exception]]]:
        return type(self), (str(self), self.worker_failures)


class NCCLHangError(WorkerGroupError):
    """For `except` clauses of Ray scripts: holdfast does not raise it. A rank that hangs in NCCL
    ends with a WorkerGroupError, after torch's own timeout or FailureConfig(hang_timeout_s=)."""


class ControllerError(TrainingFailedError):
    """For `except` clauses of Ray scripts: holdfast does not raise it. Where a run itself fails,
    `fit()` raises that error (a TuneError, StorageError and so on)."""

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"the training failed: {controller_failure}")
        self.controller_failure = controller_failure


class PreemptionError(TrainingFailedError):
    """The training was preempted more often than its FailureConfig allows. `preemption_info` has
    no deadline then: it is over. `drain_timed_out` is False: the workers have ended."""

    def __init__(self, preemption_info: PreemptionInfo, drain_timed_out: bool = False) -> None:
        super().__init__(f"the training was preempted: ranks {preemption_info.preempted_ranks}")
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out


def failed(error: TrialError, text: str) -> TrainingFailedError:
    """The error of a training whose trial ended with `error`."""
    failure = error.failure
    if failure.kind == "preempted":
        ranks = [] if failure.rank is None else [failure.rank]
        preempted = PreemptionError(PreemptionInfo(None, {failure.node: ranks}))
        preempted.args = (text,)
        return preempted
    return WorkerGroupError(text, {failure.rank or 0: error})


@explains_keywords
class DataParallelTrainer:
    """Runs one function in `scaling_config.num_workers` processes at once, the ranks of a group.

    `train_loop_per_worker` takes `train_loop_config` or nothing. Every rank calls
    `holdfast.train.report` equally often. The row holds rank 0's metrics; the checkpoint holds the
    files of all ranks that passed one. `datasets`, by name, are split among the ranks as
    `dataset_config` says; `get_dataset_shard(name)` returns a rank's part. `metadata`, plain JSON
    values, is what `get_context().get_metadata()` and each checkpoint's `get_metadata()` return.
    `validation_config`: the function of `report(..., validation=True)`.
    `get_checkpoint()` returns `resume_from_checkpoint` until this run has a checkpoint of its own.
    `backend_config` sets up the framework's process group. `run_config`: storage, failures,
    output.

    `keep_all_metrics`: rows also hold the metrics of every rank, as `ranks/<rank>/<name>`.
    `refuse_clashes`: if two ranks put files of one name into one checkpoint, the report fails;
    otherwise the last rank's file is kept, with a warning.

    Raises InvalidConfig for invalid settings.
    """

    _backend_type: ClassVar[type[BackendConfig]] = BackendConfig

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        keep_all_metrics: bool = False,
        refuse_clashes: bool = False,
    ) -> None:
        for name, value, kind in (
            ("train_loop_config", train_loop_config, Mapping),
            ("backend_config", backend_config, self._backend_type),
            ("scaling_config", scaling_config, ScalingConfig),
            ("dataset_config", dataset_config, DataConfig),
            ("run_config", run_config, RunConfig),
            ("datasets", datasets, Mapping),
            ("validation_config", validation_config, ValidationConfig),
            ("metadata", metadata, Mapping),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
        ):
            if value is not None and not isinstance(value, kind):
                raise InvalidConfig(f"{name} must be a {kind.__name__}, not {value!r:.100}")
        self.run_config = run_config or RunConfig()
        data_config = dataset_config or DataConfig()
        data_config.check(datasets or {})
        self._loop = TrainLoop(
            name=type(self).__name__,
            function=train_loop_per_worker,
            config=dict(train_loop_config or {}),
            backend=checked(backend_config or self._backend_type()),
            scaling=checked(scaling_config or ScalingConfig()),
            datasets=dict(datasets or {}),
            data_config=data_config,
            metadata=_as_json(metadata or {}),
            start=resume_from_checkpoint,
            validation=validation_config,
            terms=GroupTerms(keeps_all_metrics=keep_all_metrics, refuses_clashes=refuse_clashes),
        )
        self._tuner: Tuner | None = None
        _tell_without_effect(self._loop.scaling)

    def as_trainable(self) -> TrainLoop:
        """The training loop that `Tuner(trainer)` runs in each trial."""
        return self._loop

    @short_errors
    def fit(self, *, resume: str | None = None, trusted: bool = True) -> Result:
        """Train to the end and return the result.

        `resume="auto"` resumes the training of the RunConfig's name from its newest checkpoint,
        and starts a new one if there is none; with "must" it raises NothingToRestore instead. None
        is "never", and "auto" in a script that imports `ray`, where Train V2 does so. The number
        of workers, the `train_loop_config` and `stop` may differ: a finished training is then
        trained further. With `trusted=False` nothing from the training's folder is unpickled:
        this script's objects are used instead.

        Raises TrainingFailedError if the training fails (WorkerGroupError if a worker did,
        PreemptionError if it was preempted too often), and what `Tuner.fit` raises before it
        starts.
        """
        self._loop.check_constant()
        if resume is None:
            is_named = self.run_config.name is not None
            resume = (
                "auto" if is_named and self._tuner is None and ray_path.is_active() else "never"
            )
        tuner = self._tuner or Tuner(self, run_config=self.run_config)
        if tuner.earlier is not None:
            # It cannot be resumed: if it failed, raise its own failure.
            results = tuner.earlier_results()
        elif resume == "never":
            results = tuner.fit()
        else:
            scaled = self._loop.scaling.as_placement_group_factory()
            tuner = tuner.with_trainable(self._loop, scaled) if self._tuner is None else tuner
            resume_errored = ResumeConfig(errored="resume")
            results = tuner.fit(
                resume=resume, resume_config=resume_errored, trusted=trusted, extend=True
            )
        (result,) = results
        if result.error is not None:
            uri = results.uri or results.experiment_path
            call = f"{type(self).__name__}.restore({uri!r}).fit()"
            if results.uri is not None and not in_notebook():
                call = f"{resume_command(uri, '--resume-errored')} (in Python: {call})"
            raise failed(
                result.error,
                f"the training failed: {result.error}\n"
                f"What it kept is in {result.path}. To resume from its newest checkpoint: "
                f"{call}. To retry "
                f"automatically: RunConfig(failure_config=FailureConfig(max_failures=...))",
            ) from result.error
        return result

    @classmethod
    @short_errors
    def can_restore(
        cls, path: str | os.PathLike[str] | RunConfig, storage_filesystem: Any = None
    ) -> bool:
        """True if there is a training to restore at `path`, or where a RunConfig says.

        Raises StorageError if the storage does not answer.
        """
        return Tuner.can_restore(path, storage_filesystem)

    @classmethod
    @short_errors
    def restore(
        cls,
        path: str | os.PathLike[str] | RunConfig,
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: Mapping[str, Any] | None = None,
        *,
        datasets: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        storage_filesystem: Any = None,
        run: int | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        trusted: bool = True,
        trainer: Self | None = None,
    ) -> Self:
        """A trainer whose `fit()` resumes the training at `path` from its newest checkpoint.

        `path` may be the RunConfig, with a name, that the training began with. Arguments that you
        leave out stay as they were; another `scaling_config` changes the number of workers, and
        with another `train_loop_config` a finished training is trained further. Of the
        RunConfig's `runtime_env` the records keep only names: pass it again.

        Of several trainings under one name the newest is restored. With `run=N` (from 1) the
        trainer reads training N instead: `fit()` returns its result if it is finished, and raises
        InvalidConfig otherwise.

        With `trusted=False` nothing from the training's folder is unpickled, now or in `fit()`:
        pass a `trainer` made as the one that began the training. It replaces what is pickled.

        Raises NothingToRestore, BrokenTunerFile, NotTrusted, InvalidConfig.
        """
        if trainer is not None and (trusted or not isinstance(trainer, cls)):
            raise InvalidConfig(
                f"trainer is for restore(..., trusted=False), and must be a {cls.__name__} made "
                f"as the one that began the training, not {trainer!r:.100}"
            )
        given: dict[str, Any] = {
            "function": train_loop_per_worker,
            "config": train_loop_config,
            "datasets": datasets,
            "scaling": checked(scaling_config),
        }
        anew = {name: value for name, value in given.items() if value is not None}

        def tuner_of(trained: Any) -> Tuner:
            return Tuner.restore(
                path,
                trained,
                resume_errored=True,
                param_space=None if trained is None else {},
                storage_filesystem=storage_filesystem,
                run=run,
                runtime_env=runtime_env,
                trusted=trusted,
                run_config=None if trainer is None else trainer.run_config,
                extend=True,
            )

        try:
            tuner = tuner_of(trainer)
        except NotTrusted as error:
            if trainer is not None:
                raise
            raise NotTrusted(error.fault, _GIVE_TRAINER) from None
        restored = cls.__new__(cls)
        restored.run_config = RunConfig()
        restored._tuner = tuner
        loop = tuner.trainable
        if tuner.earlier is not None:
            loop = TrainLoop(name=loop, function=train_loop_per_worker or _of_an_earlier_run)
        if not isinstance(loop, TrainLoop) or loop.name != cls.__name__:
            raise InvalidConfig(
                f"{path} holds no training of a {cls.__name__}: restore it with the class that "
                f"began it"
            )
        restored._loop = replace(loop, **anew)
        if tuner.earlier is None:
            if "config" in anew:  # known only now that the loop is
                restored._tuner = tuner = tuner_of(restored._loop)
            resources = scaling_config.as_placement_group_factory() if scaling_config else None
            tuner.with_trainable(restored._loop, resources)
        return restored


_GIVE_TRAINER = (
    "with trusted=False nothing is unpickled. Pass trainer=, made as the one that began it; "
    "trusted=True runs code from the training's folder"
)


def _tell_without_effect(scaling: ScalingConfig) -> None:
    """One line about settings that change nothing here."""
    if given := scaling.without_effect:
        print(
            f"holdfast: ScalingConfig({', '.join(given)}) is ignored: machines have no labels "
            f"here. To choose machines, ask for a custom resource in resources_per_worker",
            file=sys.stderr,
        )


def _of_an_earlier_run() -> None:
    """Replaces the loop of an earlier run: only the newest run's is kept."""


def _as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(metadata)))
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"metadata must be plain JSON values: {error}") from error
    return plain


@short_errors
def load(
    path: str | os.PathLike[str] | RunConfig,
    storage_filesystem: Any = None,
    *,
    run: int | None = None,
) -> Result:
    """The result of the training at `path`, as a trainer's `fit()` returned it.

    If the training failed, its `error` says why; nothing is raised. The arguments are those of
    `tune.load`, which also reads a training, as a grid of one result.

    Raises InvalidConfig for an experiment of several trials, and what `tune.load` raises.
    """
    from holdfast.api import load_experiment

    results = load_experiment.load(path, storage_filesystem, run=run)
    if len(results) != 1:
        raise InvalidConfig(
            f"{results.experiment_path} holds {len(results)} trials, not one training: use "
            f"tune.load"
        )
    return results[0]
