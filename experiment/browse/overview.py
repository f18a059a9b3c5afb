"""`holdfast show`: an experiment and its trials as JSON values."""

from __future__ import annotations

from typing import Any

from holdfast.experiment.browse.condition import best_of, counts
from holdfast.experiment.browse.found import LocatedExperiment
from holdfast.experiment.browse.logs import log_names, place_of
from holdfast.experiment.folder.layout import ERROR
from holdfast.experiment.progress.failure_text import cause, user_frame
from holdfast.experiment.progress.finished_stats import value_of
from holdfast.experiment.results.ranking import AUTOMATIC
from holdfast.experiment.results.result import Result
from holdfast.experiment.results.trial_count import not_created
from holdfast.experiment.results.varied_parameters import params_of, varied_names
from holdfast.trial.readable import readable
from holdfast.trial.trial import Status, Trial


def overview(found: LocatedExperiment, *, now: float) -> dict[str, Any]:
    """The facts about an experiment without its trials; docs/command.md describes the fields.

    Read from its records alone, except for the time of its last publication to storage.
    """
    machine, spec = found.machine, found.machine.spec
    best = best_of(machine, spec.metric, spec.mode)
    return {
        "name": found.name,
        "path": found.shown,
        "state": found.condition(now).value,
        "holder": found.signs.holder,
        "heard_at": found.signs.heard_at,
        "trainable": spec.trainable,
        "metric": spec.metric,
        "mode": spec.mode,
        "began_at": found.read.began_at,
        "updated_at": machine.now,
        "active_s": machine.active_s,
        "run": None if found.read.runs_before is None else found.read.runs_before + 1,
        "restores": machine.epoch - 1,
        "ending": machine.ending.message or machine.ending.reason if machine.ending else "",
        "counts": counts(machine),
        "not_created": not_created(machine),
        "best": None if best is None else described(found, best),
        "notices": list(found.read.notices),
    }


def complete(found: LocatedExperiment, *, now: float) -> dict[str, Any]:
    """`overview`, with the names of the varied parameters and every trial."""
    trials = list(found.machine.trials.values())
    return {
        **overview(found, now=now),
        "varied": varied_names(found.machine.spec, trials),
        "trials": [described(found, trial) for trial in trials],
    }


def described(found: LocatedExperiment, trial: Trial) -> dict[str, Any]:
    """One trial as JSON values."""
    spec = trial.spec
    newest = trial.newest_checkpoint
    return {
        "trial_id": trial.trial_id,
        "index": spec.index,
        "name": spec.name,
        "status": trial.status.value,
        "iteration": trial.iteration,
        "attempt": trial.attempt,
        "failures": trial.setbacks,
        "time_total_s": trial.time_total_s,
        "reported_at": trial.reported_at or None,
        "value": value_of(trial, found.machine.spec.metric),
        "params": params_of(trial),
        "metrics": readable(dict(trial.row)) if trial.row is not None else None,
        "checkpoint": None if newest is None else f"{spec.dirname}/{newest.dirname}",
        "folder": spec.dirname,
        "error": None if trial.error is None else _error(found, trial),
    }


def as_of_row(trial: Trial, result: Result) -> dict[str, Any]:
    """The fields of `described` that differ for a result of a row that is not the newest."""
    row, checkpoint = result.metrics or {}, result.checkpoint
    name = None if checkpoint is None else checkpoint.path.rstrip("/").rpartition("/")[2]
    return {
        "iteration": row.get("training_iteration"),
        "metrics": readable({key: value for key, value in row.items() if key not in AUTOMATIC}),
        "checkpoint": None if name is None else f"{trial.spec.dirname}/{name}",
    }


def _error(found: LocatedExperiment, trial: Trial) -> dict[str, Any] | None:
    """The trial's last error; `final` is false if the trial is retried."""
    failure = trial.error
    if failure is None:
        return None
    return {
        "headline": failure.headline,
        "kind": failure.kind,
        "where": user_frame(failure),
        "final": trial.status.is_final,
        "error_file": place_of(found, trial, ERROR),
        "logs": [place_of(found, trial, name) for name in log_names(found.machine.spec)],
    }


def failures(found: LocatedExperiment) -> list[tuple[dict[str, Any], int]]:
    """Each cause of failed trials: the first such trial, and their number, most frequent cause
    first.

    `cause` groups failures, as in the terminal of a run.
    """
    causes: dict[tuple[str, str], list[Trial]] = {}
    for trial in found.machine.trials.values():
        if trial.status is Status.ERROR and trial.error is not None:
            key = cause(trial.error.headline, user_frame(trial.error))
            causes.setdefault(key, []).append(trial)
    several = sorted(causes.values(), key=len, reverse=True)
    return [(described(found, trials[0]), len(trials)) for trials in several]
