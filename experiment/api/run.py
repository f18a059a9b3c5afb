"""`tune.run` and `tune.run_experiments`: the functions of Ray that are older than `Tuner`.

They make a `Tuner` of their arguments and call its `fit`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.experiment.api.experiment import Experiment, experiments_in
from holdfast.experiment.api.tuner import Tuner
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.experiment.results.analysis import ExperimentAnalysis
from holdfast.experiment.results.short_errors import short_errors
from holdfast.experiment.start.resume_words import Resuming, resuming
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.text.values import counted
from holdfast.trial.config import CheckpointConfig, StopCriteria, SyncConfig
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.trial import Trial
from holdfast.trial.tuning import Mode, ResumeConfig
from holdfast.unknown_keywords import explains_call

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
    num_samples: int = 1,
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
