"""`holdfast show`: the facts about an experiment and its trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.browse.condition import Condition, counts, stop_reasons
from holdfast.experiment.browse.locate import LocatedExperiment
from holdfast.experiment.browse.logs import log_names, place_of
from holdfast.experiment.folder.layout import ERROR
from holdfast.experiment.progress.scheduler_facts import rung_counts, takeover_facts
from holdfast.experiment.progress.summarizer import leader, value_of
from holdfast.experiment.progress.wording import cause, user_frame
from holdfast.experiment.results.ranking import AUTOMATIC
from holdfast.experiment.results.result import Result
from holdfast.experiment.results.trial_count import not_created
from holdfast.experiment.results.varied_parameters import params_of, varied_names
from holdfast.text.trials import stop_reason, stop_sentence
from holdfast.trial.errors import Failure, on_node
from holdfast.trial.resources import Usage, usage_of_all
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import readable


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The facts about an experiment without its trials; docs/command.md describes the fields."""

    name: str
    path: str
    state: Condition
    holder: str
    heard_at: float | None
    trainable: str
    metric: str | None
    mode: str | None
    goals: Mapping[str, str]
    pareto_front: tuple[str, ...]
    began_at: float
    updated_at: float
    active_s: float
    run: int | None
    restores: int
    ending: str
    tags: Mapping[str, str]
    counts: Mapping[str, int]
    stop_reasons: Mapping[str, int]
    not_created: int | None
    best: Mapping[str, Any] | None
    usage: Usage | None
    notices: tuple[str, ...]
    storage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailure:
    """A trial's last error, and on which `node` and host; `final` is false if the trial is
    retried."""

    headline: str
    kind: str
    node: str
    hostname: str
    where: str
    final: bool
    error_file: str
    logs: tuple[str, ...]

    @property
    def on_node(self) -> str:
        """`on node a`; empty on the controller's machine."""
        return on_node(self.node, self.hostname)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCause:
    """Failures of one cause: the first trial that failed so, and the number of trials."""

    trial_id: str
    failure: TrialFailure
    trials: int


def overview(experiment: LocatedExperiment, *, now: float) -> Overview:
    """Reads only the records, and the time of the last publication to storage."""
    machine, spec = experiment.machine, experiment.machine.spec
    best = leader(machine.trials.values(), spec.metric, spec.mode)
    state = experiment.condition(now)
    is_live = state is Condition.LIVE
    return Overview(
        name=experiment.name,
        path=experiment.shown,
        state=state,
        holder=experiment.holder,
        heard_at=experiment.heard_at,
        trainable=spec.trainable,
        metric=spec.metric,
        mode=spec.mode,
        goals=spec.goals,
        pareto_front=experiment.pareto_front,
        began_at=experiment.read.began_at,
        updated_at=machine.now,
        active_s=machine.active_s,
        run=experiment.read.run,
        restores=machine.epoch - 1,
        ending=machine.ending.message or machine.ending.reason if machine.ending else "",
        tags=spec.options.get("tags", {}),
        counts=counts(machine),
        stop_reasons=stop_reasons(machine, is_live=is_live),
        not_created=not_created(machine),
        best=None if best is None else trial_as_json(experiment, best, is_live=is_live),
        usage=usage_of_all([usage for trial in machine.trials.values() for usage in trial.usages]),
        notices=experiment.read.notices,
        storage=experiment.storage,
    )


def experiment_as_json(experiment: LocatedExperiment, *, now: float) -> dict[str, Any]:
    """The overview, the names of the varied parameters, and every trial, as JSON values."""
    trials = list(experiment.machine.trials.values())
    is_live = experiment.condition(now) is Condition.LIVE
    return {
        **asdict(overview(experiment, now=now)),
        "scheduler": experiment.machine.spec.scheduler,
        "rungs": [asdict(rung) for rung in rung_counts(trials)],
        "takeovers": [asdict(takeover) for takeover in takeover_facts(trials)],
        "varied": varied_names(experiment.machine.spec, trials),
        "trials": [trial_as_json(experiment, trial, is_live=is_live) for trial in trials],
    }


def trial_as_json(experiment: LocatedExperiment, trial: Trial, *, is_live: bool) -> dict[str, Any]:
    """One trial as JSON values."""
    spec, settings = trial.spec, experiment.machine.spec
    newest = trial.newest_checkpoint
    return {
        "trial_id": trial.trial_id,
        "index": spec.index,
        "name": spec.name,
        "status": trial.shown_status.value,
        "stop_reason": stop_reason(trial, is_live=is_live),
        "why": stop_sentence(trial, settings.options, is_live=is_live),
        "iteration": trial.iteration,
        "attempt": trial.attempt,
        "node": trial.place.node,
        "nodes": list(trial.place.nodes),
        "failures": trial.setbacks,
        "time_total_s": trial.time_total_s,
        "usage": None if trial.usage is None else asdict(trial.usage),
        "usages": [asdict(usage) for usage in trial.usages],
        "reported_at": trial.reported_at or None,
        "value": value_of(trial, settings.metric),
        "params": params_of(trial),
        "metrics": readable(dict(trial.row)) if trial.row is not None else None,
        "checkpoint": None if newest is None else f"{spec.dirname}/{newest.dirname}",
        "folder": spec.dirname,
        "note": trial.note,
        "unread": trial.unread,
        "is_added": spec.is_added,
        "is_held": trial.is_held,
        "error": None if trial.error is None else asdict(_failure(experiment, trial, trial.error)),
    }


def row_as_json(trial: Trial, result: Result) -> dict[str, Any]:
    """The fields of `trial_as_json` that differ for a result of a row that is not the newest."""
    row, checkpoint = result.metrics or {}, result.checkpoint
    name = None if checkpoint is None else checkpoint.path.rstrip("/").rpartition("/")[2]
    return {
        "iteration": row.get("training_iteration"),
        "metrics": readable({key: value for key, value in row.items() if key not in AUTOMATIC}),
        "checkpoint": None if name is None else f"{trial.spec.dirname}/{name}",
    }


def failure_causes(experiment: LocatedExperiment) -> list[FailureCause]:
    """The causes of failed trials, most frequent first, grouped as in the terminal of a run."""
    groups: dict[tuple[str, str], list[tuple[Trial, Failure]]] = {}
    for trial in experiment.machine.trials.values():
        if trial.status is Status.ERROR and trial.error is not None:
            key = cause(trial.error.headline, user_frame(trial.error))
            groups.setdefault(key, []).append((trial, trial.error))
    return [
        FailureCause(
            trial_id=group[0][0].trial_id,
            failure=_failure(experiment, *group[0]),
            trials=len(group),
        )
        for group in sorted(groups.values(), key=len, reverse=True)
    ]


def _failure(experiment: LocatedExperiment, trial: Trial, error: Failure) -> TrialFailure:
    return TrialFailure(
        headline=error.headline,
        kind=error.kind,
        node=error.node,
        hostname=error.hostname,
        where=user_frame(error),
        final=trial.status.is_final,
        error_file=place_of(experiment, trial, ERROR),
        logs=tuple(
            place_of(experiment, trial, name) for name in log_names(experiment.machine.spec)
        ),
    )
