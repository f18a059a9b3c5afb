"""`tune.run`, `tune.run_experiments` and `Experiment`: Ray's interface that is older than `Tuner`.

They make a `Tuner` of their arguments and call its `fit`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast.api.tuner import Tuner
from holdfast.compat.advice import explains_call, explains_keywords
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.start.restoring import Resuming, resuming
from holdfast.experiment.worker import trainables
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.plain_numbers import Unset
from holdfast.results.result_grid import ExperimentAnalysis
from holdfast.results.short_errors import short_errors
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.text.values import counted
from holdfast.trial.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    StopCriteria,
    SyncConfig,
    TuneConfig,
)
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.metrics import Mode
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.stoppers import Stopper
from holdfast.trial.trial import Trial

if TYPE_CHECKING:
    from holdfast.experiment.records.place import ExperimentPlace


# Older names of the parts of a CheckpointConfig.
_CHECKPOINT_WORDS: Final = (
    "keep_checkpoints_num",
    "checkpoint_score_attr",
    "checkpoint_freq",
    "checkpoint_at_end",
)


@explains_keywords
class Experiment:
    """A trainable with its search space and settings, for `tune.run` and `tune.run_experiments`.

    The parameters are those of `tune.run`. Raises InvalidConfig.
    """

    def __init__(
        self,
        name: str | None,
        run: Any,
        *,
        stop: Any = None,
        time_budget_s: Any = None,
        config: Mapping[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: str | os.PathLike[str] | None = None,
        storage_filesystem: Any = None,
        sync_config: SyncConfig | Mapping[str, Any] | None = None,
        checkpoint_config: CheckpointConfig | Mapping[str, Any] | None = None,
        trial_name_creator: Any = None,
        trial_dirname_creator: Any = None,
        log_to_file: Any = False,
        export_formats: Sequence[str] | str | None = None,
        max_failures: int = 0,
        restore: str | os.PathLike[str] | Checkpoint | None = None,
        local_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise InvalidConfig(f"config must be a dict, not {config!r:.100}")
        self.run_identifier = run if isinstance(run, str) else self.get_trainable_name(run)
        self.trainable = _bound(run, resources_per_trial, export_formats, restore)
        self.config = dict(config or {})
        self.tune_config = TuneConfig(
            num_samples=num_samples,
            time_budget_s=time_budget_s,
            trial_name_creator=trial_name_creator,
            trial_dirname_creator=trial_dirname_creator,
        )
        self.run_config = RunConfig(
            name=name,
            storage_path=storage_path,
            local_dir=local_dir,
            storage_filesystem=storage_filesystem,
            sync_config=_made(SyncConfig, sync_config, "sync_config"),
            checkpoint_config=_made(CheckpointConfig, checkpoint_config, "checkpoint_config"),
            failure_config=FailureConfig(max_failures=max_failures),
            stop=stop,
            log_to_file=log_to_file or False,
        )

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Self:
        """The experiment of a dict such as `{"run": train, "stop": {...}, "config": {...}}`.

        Raises InvalidConfig, and TypeError for an unknown key.
        """
        if not isinstance(spec, Mapping) or "run" not in spec:
            raise InvalidConfig(
                f"the experiment {name!r} must be a dict with 'run', the trainable, not "
                f"{spec!r:.100}"
            )
        given = dict(spec)
        if "env" in given:  # the older place of a parameter that RLlib has
            given["config"] = {**given.get("config", {}), "env": given.pop("env")}
        words = {word: given.pop(word) for word in _CHECKPOINT_WORDS if word in given}
        if words:
            made = _made(CheckpointConfig, given.get("checkpoint_config"), "checkpoint_config")
            given["checkpoint_config"] = _with_words(made, **words)
        return cls(name, given.pop("run"), **given)

    @classmethod
    def get_trainable_name(cls, run_object: Any) -> str:
        """The name of a trainable in the names of its trials. Raises InvalidConfig."""
        if isinstance(run_object, str):
            return run_object
        return trainables.name_of(trainables.find_trainable(run_object))

    @classmethod
    def register_if_needed(cls, run_object: Any) -> str:
        """Register a trainable that is not a registered name. Returns its name."""
        name = cls.get_trainable_name(run_object)
        if not isinstance(run_object, str):
            trainables.register_trainable(name, trainables.find_trainable(run_object))
        return name

    @property
    def name(self) -> str | None:
        """The name of its folder; None for one made when it starts."""
        return self.run_config.name

    @property
    def stopper(self) -> Stopper | None:
        """`stop`, if it is a Stopper."""
        stop = self.run_config.stop
        return stop if isinstance(stop, Stopper) else None

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        """That of its RunConfig."""
        return self.run_config.checkpoint_config

    @property
    def public_spec(self) -> dict[str, Any]:
        """What search algorithms and schedulers get to know of it."""
        stop = self.run_config.stop
        return {
            "stop": dict(stop) if isinstance(stop, Mapping) else {},
            "num_samples": self.tune_config.num_samples,
            "time_budget_s": self.tune_config.time_budget_s,
        }

    @property
    def path(self) -> str | None:
        """Its folder in storage, on `storage_filesystem`; None before it has a name."""
        return self._place.location.path if self._place else None

    @property
    def remote_path(self) -> str | None:
        """The same as `path`."""
        return self.path

    @property
    def local_path(self) -> str | None:
        """Its folder on this machine; None before it has a name."""
        return str(self._place.layout.root) if self._place else None

    @property
    def _place(self) -> ExperimentPlace | None:
        from holdfast.experiment.records.place import find_place

        run, settings = self.run_config, Settings.read(os.environ)
        if run.name is None:
            return None
        return find_place(run.storage_path, run.storage_filesystem, run.name, settings, os.environ)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.run_identifier})"


def experiments_in(given: Any) -> list[Experiment]:
    """The experiments in an Experiment, a dict of specs by name, or a list of these.

    Raises InvalidConfig.
    """
    if isinstance(given, Experiment):
        return [given]
    if isinstance(given, Mapping):
        return [Experiment.from_json(name, spec) for name, spec in given.items()]
    if isinstance(given, (list, tuple)):
        return [one for part in given for one in experiments_in(part)]
    raise InvalidConfig(
        f"experiments must be a tune.Experiment, a dict such as {{'name': {{'run': train}}}}, or "
        f"a list of them, not {given!r:.100}"
    )


def _with_words(
    config: CheckpointConfig,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
) -> CheckpointConfig:
    """The CheckpointConfig with what the older arguments say. Raises InvalidConfig."""
    changes: dict[str, Any] = {}
    if keep_checkpoints_num is not None:
        changes["num_to_keep"] = keep_checkpoints_num
    if checkpoint_score_attr is not None:
        is_min = checkpoint_score_attr.startswith("min-")
        changes["checkpoint_score_attribute"] = checkpoint_score_attr.removeprefix("min-")
        changes["checkpoint_score_order"] = "min" if is_min else "max"
    if checkpoint_freq:
        changes["checkpoint_frequency"] = checkpoint_freq
    if checkpoint_at_end:
        changes["checkpoint_at_end"] = True
    return replace(config, **changes)


def _bound(run: Any, resources: Any, exports: Any, restore: Any) -> Any:
    """The trainable with its resources, exports and first checkpoint. Raises InvalidConfig."""
    trainable = trainables.find_trainable(run)
    if exports:
        trainable = _exporting(trainable, [exports] if isinstance(exports, str) else exports)
    start = None if restore is None else _checkpoint_at(restore)
    if isinstance(trainable, TrainLoop):
        if resources is not None:
            raise InvalidConfig(
                "resources_per_trial: the workers of a trainer get those of its ScalingConfig, "
                "such as ScalingConfig(num_workers=2, use_gpu=True)"
            )
        return trainable if start is None else replace(trainable, start=start)
    if resources is not None:
        trainable = trainables.with_resources(trainable, _amounts(resources))
    return trainable if start is None else trainables.with_start(trainable, start)


def _exporting(trainable: Any, formats: Sequence[str]) -> Any:
    if not isinstance(trainable, type):
        raise InvalidConfig(
            "export_formats are for a Trainable class, whose export_model() each trial calls when "
            "it is done; a function exports its model itself"
        )
    return trainables.with_exports(trainable, formats)


def _checkpoint_at(restore: Any) -> Checkpoint:
    """Raises DirectoryMissing for a folder that does not exist."""
    if isinstance(restore, Checkpoint):
        return restore
    return Checkpoint.from_directory(os.path.expanduser(restore))


def _amounts(resources: Any) -> Any:
    """The resources with those under `custom_resources`, as older versions of Ray name them."""
    if callable(resources) and not isinstance(resources, PlacementGroupFactory):
        return lambda config: _amounts(resources(config))
    if isinstance(resources, Mapping) and "custom_resources" in resources:
        rest = {name: value for name, value in resources.items() if name != "custom_resources"}
        return {**rest, **(resources["custom_resources"] or {})}
    return resources


def _made(kind: type[Any], given: Any, name: str) -> Any:
    if given is None:
        return kind()
    if isinstance(given, Mapping):
        return kind(**given)
    if not isinstance(given, kind):
        raise InvalidConfig(f"{name} must be a {kind.__name__} or a dict, not {given!r:.100}")
    return given


_log = logging.getLogger(__name__)
_SHOWN: Final = 10  # failed trials in an error


class TrialsFailed(TuneError):
    """`tune.run` has ended, and these `trials` have failed. `analysis` has all results."""

    def __init__(self, analysis: ExperimentAnalysis) -> None:
        self.analysis = analysis
        self.trials = [one for one in analysis.trials if one.status == one.ERROR]
        super().__init__(_failed_text(analysis, self.trials))

    def __reduce__(self) -> tuple[type[TrialsFailed], tuple[ExperimentAnalysis]]:
        return TrialsFailed, (self.analysis,)


@short_errors
@explains_call("tune.run")
def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: Mode | None = None,
    stop: StopCriteria = None,
    time_budget_s: Any = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = Unset(1),
    storage_path: str | os.PathLike[str] | None = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    log_to_file: bool | str | tuple[str, str] = False,
    trial_name_creator: Any = None,
    trial_dirname_creator: Any = None,
    sync_config: SyncConfig | None = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: bool | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    extend: bool = False,
) -> ExperimentAnalysis:
    """Run many trials, and return the analysis of their results: `Tuner(...).fit()` in one call.

    `run_or_experiment` is what `Tuner` takes, or an Experiment, which then has the settings of its
    own. `config` is the `param_space`; the other parameters are those of TuneConfig, RunConfig,
    FailureConfig and CheckpointConfig. `resources_per_trial`: as for `tune.with_resources`.
    `restore`: the checkpoint that each trial begins from, until it has its own.
    `export_formats`: each trial of a class calls `export_model` with them when it is done.
    `keep_checkpoints_num`, `checkpoint_score_attr` ("loss", or "min-loss"), `checkpoint_freq` and
    `checkpoint_at_end` are older names of the parts of `checkpoint_config`, and `local_dir` of
    `storage_path`.

    `resume=True` or "AUTO" resumes the experiment of this `name`, or returns its results if it is
    finished, and starts one if there is none; "LOCAL" and "REMOTE" want one to be there. With
    "AUTO+ERRORED" failed trials resume, with "AUTO+RESTART_ERRORED" they start again, with
    "AUTO+ERRORED_ONLY" and "AUTO+RESTART_ERRORED_ONLY" no others do; `resume_config` says the
    same. `extend=True` (holdfast only): what this call changes in the experiment is applied, as
    in `fit`. Without `resume`, the name of an unfinished experiment is refused.

    Raises TrialsFailed, a TuneError, if a trial has failed, unless `raise_on_failed_trial` is
    False; and what `Tuner` and `Tuner.fit` raise.
    """
    experiment = _experiment_of(
        run_or_experiment,
        {
            "name": name,
            "stop": stop,
            "time_budget_s": time_budget_s,
            "config": config,
            "resources_per_trial": resources_per_trial,
            "num_samples": num_samples,
            "storage_path": storage_path,
            "storage_filesystem": storage_filesystem,
            "checkpoint_config": checkpoint_config,
            "log_to_file": log_to_file,
            "trial_name_creator": trial_name_creator,
            "trial_dirname_creator": trial_dirname_creator,
            "sync_config": sync_config,
            "export_formats": export_formats,
            "max_failures": max_failures,
            "restore": restore,
            "keep_checkpoints_num": keep_checkpoints_num,
            "checkpoint_score_attr": checkpoint_score_attr,
            "checkpoint_freq": checkpoint_freq,
            "checkpoint_at_end": checkpoint_at_end,
            "local_dir": local_dir,
        },
    )
    run_config, how = experiment.run_config, resuming(resume, resume_config)
    if how.how != "never" and run_config.name is None:
        _log.warning("resume has no effect without name=: each start makes a new experiment")
        how = Resuming("never")
    tuner = Tuner(
        experiment.trainable,
        param_space=experiment.config,
        tune_config=replace(
            experiment.tune_config,
            metric=metric,
            mode=mode,
            search_alg=search_alg,
            scheduler=scheduler,
            reuse_actors=reuse_actors,
            max_concurrent_trials=max_concurrent_trials,
            chdir_to_trial_dir=chdir_to_trial_dir,
        ),
        run_config=replace(
            run_config,
            verbose=verbose,
            progress_reporter=progress_reporter,
            callbacks=callbacks,
            failure_config=replace(run_config.failure_config, fail_fast=fail_fast),
        ),
    )
    results = tuner.fit(resume=how.how, resume_config=how.config, extend=extend)
    analysis = results.analysis
    if results.num_errors and raise_on_failed_trial:
        raise TrialsFailed(analysis)
    return analysis


@short_errors
@explains_call("tune.run_experiments")
def run_experiments(
    experiments: Any,
    scheduler: Any = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
) -> list[TrialView]:
    """Run several experiments, one after the other, and return all their trials.

    `experiments` is an Experiment, a dict of specs by name, `{"a": {"run": train, "config":
    {...}}}`, or a list of these. The other arguments are those of `tune.run`. Each experiment has
    a folder of its own and can be resumed alone. `concurrent` has no effect: trials of one
    experiment run at the same time, and two experiments do not.

    Raises TrialsFailed of the first experiment with failed trials, after all have run, and what
    `tune.run` raises.
    """
    found = experiments_in(experiments)
    analyses = [
        run(
            one,
            scheduler=scheduler,
            verbose=verbose,
            progress_reporter=progress_reporter,
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            raise_on_failed_trial=False,
            callbacks=callbacks,
        )
        for one in found
    ]
    trials: list[TrialView] = [trial for analysis in analyses for trial in analysis.trials]
    if raise_on_failed_trial:
        for analysis in analyses:
            if any(trial.status == TrialView.ERROR for trial in analysis.trials):
                raise TrialsFailed(analysis)
    return trials


def _experiment_of(given: Any, settings: Mapping[str, Any]) -> Experiment:
    """The experiment, or one made of the trainable with these settings. Raises InvalidConfig."""
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise InvalidConfig(
                f"tune.run runs one experiment, not {len(given)}: use "
                f"tune.run_experiments([...]), which runs one after the other"
            )
        (given,) = given
    if not isinstance(given, Experiment):
        rest = {name: value for name, value in settings.items() if name != "name"}
        return Experiment.from_json(settings["name"], {"run": given, **rest})
    ignored = [
        name
        for name, value in settings.items()
        if value not in (None, False, 0) and (name, value) != ("num_samples", 1)
    ]
    if ignored:
        _log.warning(
            "tune.run(experiment) takes %s from the Experiment, and ignores the arguments",
            ", ".join(ignored),
        )
    return given


def _failed_text(analysis: ExperimentAnalysis, failed: Sequence[TrialView]) -> str:
    known, path = analysis.outcome.trials, analysis.experiment_path
    lines = [f"{trial}: {_headline(known[trial.trial_id])}" for trial in failed[:_SHOWN]]
    more = [f"... {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else []
    listed = "\n  ".join([*lines, *more])
    return (
        f"{len(failed)} of {counted(len(known), 'trial', 'trials')} failed:\n  {listed}\n"
        f"All results are in {path}. To run these again: "
        f"tune.run(..., name={os.path.basename(path)!r}, resume='AUTO+ERRORED'). With "
        f"raise_on_failed_trial=False, tune.run returns the results instead of this error"
    )


def _headline(trial: Trial) -> str:
    return trial.error.headline if trial.error else "failed"
