"""`holdfast best`, and `holdfast export --model`: the best trial, and its files."""

from __future__ import annotations

import argparse
import time
from typing import Any

from holdfast.cli.printing import SOUND, complain, say, say_json
from holdfast.experiment.browse.locate import LocatedExperiment
from holdfast.experiment.progress.text_width import aligned
from holdfast.experiment.progress.wording import counted, format_cell, format_value, size
from holdfast.experiment.results.outcome import Outcome
from holdfast.experiment.results.ranking import NoBestResult
from holdfast.experiment.results.result import Result
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status, Trial


def best(given: argparse.Namespace, experiment: LocatedExperiment) -> int:
    """Returns the exit code. Raises NoBestResult, InvalidConfig, StorageError."""
    from holdfast.experiment.browse.condition import Condition
    from holdfast.experiment.browse.overview import row_as_json, trial_as_json
    from holdfast.experiment.records.rows import shown_config

    outcome = experiment.outcome
    is_one = given.metric or given.mode or given.checkpoint
    if outcome.spec.goals and outcome.metric is None and not is_one:
        return _show_front(experiment, is_json=given.json)
    metric, mode = _goal(outcome, given)
    trial, value = outcome.best_scored(metric, mode, given.scope)
    _tell_if_cut(outcome, trial)
    config = shown_config(trial.config)
    result, row = outcome.result(trial), {}
    if given.scope == "all":
        result = result.at_best(metric, mode)
        row = row_as_json(trial, result)
    copied = {}
    if given.checkpoint is not None:
        copied = _copy(experiment, trial, result, given.checkpoint, says=not given.json)
    elif not given.json:
        at = row.get("iteration", trial.iteration)
        complain(f"{metric}={format_value(value)}, trial {trial.trial_id} at iteration {at}")
        say_json(config)
    if given.json:
        is_live = experiment.condition(time.time()) is Condition.LIVE
        about = trial_as_json(experiment, trial, is_live=is_live)
        about["checkpoint_iteration"] = result.checkpoint_iteration
        goal = {"metric": metric, "mode": mode, "scope": given.scope, "value": value}
        say_json({**about, **row, **goal, "config": config, **copied})
    return SOUND


def _goal(outcome: Outcome, given: argparse.Namespace) -> tuple[str, str]:
    """The goal of the options, else the experiment's. Raises InvalidConfig."""
    try:
        return outcome.goal(given.metric, given.mode)
    except InvalidConfig as error:
        names = outcome.reported()
        if outcome.metric is None and given.metric is None and names:
            reported = f"The trials reported {', '.join(names)}"
            missing = f"this run has no metric: pass one, as in --metric {names[0]} --mode min"
            raise InvalidConfig(f"{missing}. {reported}") from error
        if outcome.mode_of(given.metric) is None and given.mode is None:
            raise InvalidConfig(f"{error}. In a shell: --mode min or --mode max") from error
        raise


def _tell_if_cut(outcome: Outcome, trial: Trial) -> None:
    """Say that the best trial failed or was stopped before it had finished: it may not be
    comparable."""
    from holdfast.experiment.progress.stop_reasons import stop_reason, stop_sentence

    if trial.status is Status.ERROR and trial.error is not None:
        complain(
            f"the best trial, {trial.trial_id}, failed after iteration {trial.iteration}: "
            f"{trial.error.headline}"
        )
        return
    reason = stop_reason(trial, outcome.spec, is_live=True)
    if reason is not None and reason.is_early:
        why = stop_sentence(trial, outcome.spec, is_live=True)
        complain(f"the best trial, {trial.trial_id}, was stopped early: {why}")


def _show_front(experiment: LocatedExperiment, *, is_json: bool) -> int:
    """The trials that no other beats in all goals."""
    from holdfast.experiment.browse.condition import Condition
    from holdfast.experiment.browse.overview import trial_as_json
    from holdfast.experiment.records.rows import shown_config
    from holdfast.experiment.results.pareto import front_text, goals_text
    from holdfast.experiment.results.varied_parameters import params_of, varied_names

    spec, front = experiment.machine.spec, experiment.outcome.pareto_front()
    if is_json:
        is_live = experiment.condition(time.time()) is Condition.LIVE
        about = [
            {
                **trial_as_json(experiment, one.trial, is_live=is_live),
                "values": dict(zip(spec.goals, one.values, strict=True)),
                "config": shown_config(one.trial.config),
            }
            for one in front
        ]
        say_json({"path": experiment.shown, "goals": dict(spec.goals), "front": about})
        return SOUND
    names = varied_names(spec, [one.trial for one in front])
    say(f"{goals_text(spec.goals)}: {front_text(len(front))}")
    lines = [["TRIAL", *spec.goals, *names]]
    for one in front:
        params = params_of(one.trial)
        cells = map(format_cell, [*one.values, *(params.get(name) for name in names)])
        lines.append([one.trial.trial_id, *cells])
    for line in aligned(lines) if front else ():
        say(line)
    return SOUND


def export_model(given: argparse.Namespace, experiment: LocatedExperiment) -> int:
    """The files of the best trial, or of the one that is named, with its config and its metrics.

    Returns the exit code. Raises NoSuchTrial, NoBestResult, InvalidConfig, StorageError.
    """
    from holdfast.experiment.browse.logs import trial_named
    from holdfast.experiment.records.rows import shown_config
    from holdfast.experiment.results.exporting.model_files import about_trial

    outcome, scope = experiment.outcome, given.scope
    goal = None
    if given.trial is None or scope == "all":
        goal = outcome.goal(given.metric, given.mode)
    if given.trial is not None:
        trial = trial_named(experiment, given.trial)
    else:
        assert goal is not None
        trial = outcome.best_scored(*goal, scope).trial
    result = outcome.result(trial)
    if scope == "all" and goal is not None:
        result = result.at_best(*goal)
    metrics = {name: value for name, value in (result.metrics or {}).items() if name != "config"}
    about = about_trial(shown_config(trial.config), metrics)
    copied = _copy(experiment, trial, result, given.model, about=about, says=not given.json)
    if given.json:
        say_json({"path": experiment.shown, "trial_id": trial.trial_id, **copied})
    return SOUND


def _copy(
    experiment: LocatedExperiment,
    trial: Trial,
    result: Result,
    target: str,
    *,
    says: bool,
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Copy the checkpoint of the result; returns what JSON says about it."""
    from holdfast.experiment.results.exporting.model_files import check_target, copy_checkpoint

    check_target(target)
    if result.checkpoint is None:
        saved = "has no checkpoint that can be read here"
        raise NoBestResult(f"trial {trial.trial_id} {saved}: {experiment.shown}", "")
    copied = copy_checkpoint(result.checkpoint, target, about=about)
    iteration = result.checkpoint_iteration
    if says:
        files = counted(copied.files, "file", "files")
        say(
            f"{copied.directory}: the checkpoint of trial {trial.trial_id} at iteration "
            f"{iteration} ({files}, {size(copied.size_bytes)})"
        )
    return {
        "directory": copied.directory,
        "checkpoint_iteration": iteration,
        "files": copied.files,
        "size_bytes": copied.size_bytes,
    }
