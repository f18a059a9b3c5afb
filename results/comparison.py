"""`holdfast compare`: what differs between experiments, or between trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.records.view import ExperimentView, Standing
from holdfast.results.drawing import PlotCurve, points
from holdfast.results.logs import trial_named
from holdfast.results.ranking import NoBestResult, params_of
from holdfast.results.result_grid import outcome_of
from holdfast.scheduler.events import ExperimentSpec
from holdfast.text.trials import short_name, stop_reason
from holdfast.trial.best import value_of
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import key_name

_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One experiment, with its best trial; or one trial of an experiment, if `is_trial`.

    `value` is the trial's last value of `metric`, or the `mean` of its fresh runs; these, and
    `trial`, may be None: nothing was reported, or the experiment has no goal.
    """

    label: str
    experiment: ExperimentView
    standing: Standing
    is_trial: bool
    metric: str | None
    mode: str | None
    trial: Trial | None
    curve: PlotCurve
    mean: float | None = None

    @property
    def spec(self) -> ExperimentSpec:
        return self.experiment.machine.spec

    @property
    def active_s(self) -> float:
        return self.experiment.machine.active_s

    @property
    def value(self) -> float | None:
        if self.trial is None or self.mean is not None:
            return self.mean
        return value_of(self.trial, self.metric)

    @property
    def stop_reason(self) -> str:
        """The reason why the trial has stopped; "" for one that runs, and without a trial."""
        reason = self.trial and stop_reason(self.trial, is_live=self.standing.is_live)
        return reason.value if reason else ""

    @property
    def params(self) -> dict[str, Any]:
        """The trial's config, flat."""
        return {} if self.trial is None else params_of(self.trial)

    @property
    def settings(self) -> dict[str, str | int]:
        """The settings of the search, and the tags, by the names of rows."""
        spec = self.spec
        tags: Mapping[str, str] = spec.options.get("tags", {})
        searched = (part for part in spec.space if part["varied"])
        return {
            "scheduler": short_name(spec.scheduler) or "none",
            "search": spec.options.get("search") or "random or grid",
            "num_samples": spec.num_samples,
            **{f"space {key_name(tuple(part['path']))}": part["text"] for part in searched},
            **{f"tag {name}": value for name, value in tags.items()},
        }

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        trial = self.trial
        return {
            "label": self.label,
            "path": self.experiment.shown,
            "state": self.standing.state.value,
            "trials": dict(self.standing.counts),
            "stop_reasons": dict(self.standing.stop_reasons),
            "not_created": self.standing.not_created,
            "active_s": self.active_s,
            "metric": self.metric,
            "mode": self.mode,
            "value": self.value,
            "trial_id": trial.trial_id if trial is not None else None,
            "status": trial.shown_status.value if trial is not None else None,
            "stop_reason": self.stop_reason or None,
            "iteration": trial.iteration if trial is not None else None,
            "time_total_s": trial.time_total_s if trial is not None else None,
            "settings": self.settings,
            "params": self.params,
            "curve": [list(point) for point in zip(self.curve.xs, self.curve.ys, strict=True)],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The sides in the order in which they were named.

    `settings` are the settings of the experiments that differ, `differing` the parameters in which
    the configs differ, `same` those that are alike.
    `metric` and `mode` are None if the sides have different goals. `x` is the axis of the curves.
    """

    sides: tuple[Side, ...]
    settings: tuple[str, ...]
    differing: tuple[str, ...]
    same: Mapping[str, Any]
    metric: str | None
    mode: str | None
    x: str

    @property
    def best(self) -> Side | None:
        """The side with the best value; None if the goals differ, or no side has a value."""
        found = [side for side in self.sides if side.value is not None]
        if not found or self.mode is None:
            return None
        choose = max if self.mode == "max" else min
        return choose(found, key=lambda side: side.value or 0.0)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        best = self.best
        return {
            "metric": self.metric,
            "mode": self.mode,
            "x": self.x,
            "best": None if best is None else best.label,
            "settings": list(self.settings),
            "differing": list(self.differing),
            "same": dict(self.same),
            "sides": [side.plain() for side in self.sides],
        }


def compare(
    found: Sequence[tuple[ExperimentView, str | None]],
    *,
    now: float,
    metric: str | None = None,
    mode: str | None = None,
    x: str = "training_iteration",
) -> Comparison:
    """Compare experiments, or trials of them: each with the name of a trial, or None for its best.

    `metric` and `mode` default to the experiments' own. Raises NoSuchTrial, InvalidConfig,
    StorageError, OSError.
    """
    labels = _labels(found)
    make = [
        _side(label, *one, now=now, metric=metric, mode=mode, x=x)
        for label, one in zip(labels, found, strict=True)
    ]
    goals = {(side.metric, side.mode) for side in make}
    goal = goals.pop() if len(goals) == 1 else (None, None)
    params = [side.params for side in make]
    differing = _differing(params)
    return Comparison(
        sides=tuple(make),
        settings=_differing([side.settings for side in make]),
        differing=differing,
        same={name: value for name, value in params[0].items() if name not in differing},
        metric=goal[0],
        mode=goal[1],
        x=x,
    )


def split_trial(text: str, is_experiment: Callable[[str], bool]) -> tuple[str, str | None]:
    """An experiment and a trial of `EXPERIMENT:TRIAL`; the whole text is tried first."""
    head, mark, tail = text.rpartition(":")
    if not mark or not head or "/" in tail or is_experiment(text):
        return text, None
    return head, tail


def _side(
    label: str,
    experiment: ExperimentView,
    name: str | None,
    *,
    now: float,
    metric: str | None,
    mode: str | None,
    x: str,
) -> Side:
    machine, outcome = experiment.machine, outcome_of(experiment)
    metric = metric or machine.spec.metric
    mode = mode or outcome.mode_of(metric)
    trial = _best(experiment, metric, mode) if name is None else trial_named(experiment, name)
    fresh = outcome.confirmed(metric, mode, "last") if name is None else []
    xs: list[float] = []
    ys: list[float] = []
    if trial is not None and metric is not None:
        ((_, rows),) = outcome.rows([trial])
        xs, ys = points(rows, metric, x)
    return Side(
        label=label,
        experiment=experiment,
        standing=experiment.standing(now),
        is_trial=name is not None,
        metric=metric,
        mode=mode,
        trial=trial,
        mean=fresh[0].mean if fresh else None,
        curve=PlotCurve(
            label=label,
            xs=xs,
            ys=ys,
            has_failed=trial is not None and trial.status is Status.ERROR,
        ),
    )


def _best(experiment: ExperimentView, metric: str | None, mode: str | None) -> Trial | None:
    """The best trial, or without a goal the only one; None if none can be best."""
    trials = list(experiment.machine.trials.values())
    if metric is None or mode is None:
        return trials[0] if len(trials) == 1 else None
    try:
        return outcome_of(experiment).best_scored(metric, mode).trial
    except NoBestResult:
        return None


def _labels(found: Sequence[tuple[ExperimentView, str | None]]) -> list[str]:
    """Short and distinct: names of experiments, or their paths if two have the same name."""
    names = [experiment.name for experiment, _ in found]
    heads = names
    if len(set(names)) < len({experiment.shown for experiment, _ in found}):
        heads = [experiment.shown for experiment, _ in found]
    if len(set(names)) == 1 and all(trial is not None for _, trial in found):
        heads = [""] * len(found)  # trials of one experiment
    labels = [
        head if trial is None else f"{head}:{trial}".lstrip(":")
        for head, (_, trial) in zip(heads, found, strict=True)
    ]
    if len(set(labels)) < len(labels):
        raise InvalidConfig("compare: name each experiment or trial once")
    return labels


def _differing(tables: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names whose values are not the same in all tables."""
    names = dict.fromkeys(name for table in tables for name in table)
    return tuple(
        name
        for name in names
        if any(one.get(name, _ABSENT) != tables[0].get(name, _ABSENT) for one in tables)
    )
