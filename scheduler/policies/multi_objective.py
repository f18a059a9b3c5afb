"""ASHA for several metrics at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.asha import check_grace, check_halving
from holdfast.scheduler.policies.goal import Goal, timeless
from holdfast.scheduler.policies.pareto import Fronts, Point
from holdfast.scheduler.policy import (
    Abort,
    Decision,
    NoteRung,
    Observation,
    StopTrial,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.scheduler.state import row_of
from holdfast.trial.absent import names_text, near_text
from holdfast.trial.errors import require
from holdfast.trial.trial import Trial
from holdfast.trial.tuning import MODES


class FrontRung:
    """The values of trials, by each metric, when they reached `milestone`."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self._fronts = Fronts()
        self._judged: set[str] = set()

    def promotes(self, trial_id: str, point: Point, reduction_factor: float) -> bool | None:
        """Whether a trial is among the best that have reached the rung; None if it was judged
        before."""
        if trial_id in self._judged:
            return None
        self._judged.add(trial_id)
        number = self._fronts.add(point)
        count = max(1, math.floor(len(self._fronts) / reduction_factor))
        if len(self._fronts) > 1 and point[0] == -math.inf:
            return False
        return self._fronts.is_among_first(number, count)


class MultiObjectiveASHAScheduler(TrialScheduler):
    """Successive halving for several metrics.

    At each rung, a trial stops unless it is among the best that have reached it. `metrics` and
    `modes` name the metrics and a "min" or "max" for each. The first rung is at `grace_period`,
    and each further one `reduction_factor` times as far, up to `max_t`, measured in `time_attr`; a
    trial stops at `max_t`. Of n trials that have reached a rung, the first n / reduction_factor
    continue, at least one. They are ordered by non-dominated sorting: first those that no other
    dominates, then those that only these dominate, and so on. Where only part of a front fits, an
    epsilon-net selects trials that cover it well, starting with the best by the first metric. A
    trial with a value that is not finite is worst by all metrics.

    A report that lacks one of the metrics is skipped; if it is the first report of the run, the
    run ends. `TuneConfig(metric=...)` may name one of them, for `get_best_result()`, or none.

    Schmucker, Donini, Zafar, Salinas, Archambeau, "Multi-objective Asynchronous Successive
    Halving" (2021), in the variant that stops trials and needs no checkpoints.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        modes: Sequence[str],
        time_attr: str = "training_iteration",
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 3,
    ) -> None:
        _check_goals(type(self).__name__, metrics, modes, time_attr)
        check_halving(self, max_t, reduction_factor)
        check_grace(self, grace_period, max_t)
        self._goals = [
            Goal(metric=metric, mode=mode, time_attr=time_attr)
            for metric, mode in zip(metrics, modes, strict=True)
        ]
        self._max_t, self._factor = max_t, reduction_factor
        # log(81, 3) is 3.9999999999999996.
        last = math.floor(math.log(max_t / grace_period, reduction_factor) + 1e-9)
        self._rungs = [
            FrontRung(grace_period * reduction_factor**power) for power in range(last, -1, -1)
        ]
        self._is_first = True

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it judges by."""
        return tuple(goal.metric for goal in self._goals)

    @property
    def modes(self) -> tuple[str, ...]:
        """The mode of each metric."""
        return tuple(goal.mode for goal in self._goals)

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._is_first = spec.strict_metric
        for goal in self._goals:
            require(
                goal.metric != spec.metric or spec.mode in (goal.mode, None),
                f"{type(self).__name__} has {goal.metric!r} with mode {goal.mode!r}, and "
                f"TuneConfig(metric={spec.metric!r}, mode={spec.mode!r}): make them agree",
            )
        return fresh

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, TrialEnded):
            return self._note_last(view.trials[event.trial_id])
        if not isinstance(event, TrialReported):
            return ()
        is_first, self._is_first = self._is_first, False
        if is_first and (text := self._lacking(event.row)):
            return [Abort(message=text)]
        time, point = self._goals[0].time(event.row), self._point(event.row)
        if time is None:
            return [Abort(message=timeless(self, self._goals[0].time_attr, event.row))]
        return () if point is None else self._judge(event.trial_id, time, point)

    def _note_last(self, trial: Trial) -> Sequence[Decision]:
        """Record the last report of a trial that reached one of the user's bounds."""
        if trial.row is None:
            return ()
        row = row_of(trial)
        time, point = self._goals[0].time(row), self._point(row)
        if time is None or point is None:
            return ()
        return _note(trial.trial_id, *self._judged(trial.trial_id, time, point), None)

    def _judge(self, trial_id: str, time: float, point: Point) -> Sequence[Decision]:
        rung, promoted = self._judged(trial_id, time, point)
        time_attr = self._goals[0].time_attr
        if time >= self._max_t:
            why = f"{time_attr} reached max_t={self._max_t:g}"
            stop = StopTrial(trial_id=trial_id, why=why, is_early=False)
            return [*_note(trial_id, rung, promoted, None), stop]
        if promoted is not False:
            return _note(trial_id, rung, promoted, promoted)
        values = ", ".join(map(Goal.text, self._goals, point))
        why = f"{values} at {time_attr}={time:g} is not among the best 1 in {self._factor:g}"
        stop = StopTrial(trial_id=trial_id, why=why, is_early=True)
        return [*_note(trial_id, rung, promoted, False), stop]

    def _judged(
        self, trial_id: str, time: float, point: Point
    ) -> tuple[FrontRung | None, bool | None]:
        """The highest rung that the trial has reached, and whether it continues there; None if
        that was decided before."""
        rung = next((rung for rung in self._rungs if rung.milestone <= time), None)
        return rung, None if rung is None else rung.promotes(trial_id, point, self._factor)

    def _point(self, row: Mapping[str, Any]) -> Point | None:
        values = [value for goal in self._goals if (value := goal.value(row)) is not None]
        if len(values) < len(self._goals):
            return None
        return values if -math.inf not in values else [-math.inf] * len(values)

    def _lacking(self, row: Mapping[str, Any]) -> str:
        lacking = [goal.metric for goal in self._goals if goal.value(row) is None]
        if not lacking:
            return ""
        return (
            f"{type(self).__name__}: the first report has no number named "
            f"{', '.join(map(repr, lacking))}.{near_text(lacking, row)} Reported: "
            f"{names_text(row)}"
        )


def _note(
    trial_id: str, rung: FrontRung | None, judged: bool | None, promoted: bool | None
) -> list[Decision]:
    """`judged` is None if there is nothing new to note."""
    if rung is None or judged is None:
        return []
    return [NoteRung(trial_id=trial_id, milestone=rung.milestone, promoted=promoted)]


def _check_goals(name: str, metrics: object, modes: object, time_attr: object) -> None:
    """Raise InvalidConfig unless the settings are valid."""
    for what, given in (("metrics", metrics), ("modes", modes)):
        is_list = isinstance(given, Sequence) and not isinstance(given, str)
        require(is_list, f"{name}({what}={given!r}): pass a list")
    assert isinstance(metrics, Sequence)
    assert isinstance(modes, Sequence)
    are_names = all(isinstance(metric, str) and metric for metric in metrics)
    require(
        are_names and len(metrics) > 1 and len(set(metrics)) == len(metrics),
        f"{name}(metrics={metrics!r}): pass the names of two or more reported values",
    )
    require(
        len(modes) == len(metrics) and all(mode in MODES for mode in modes),
        f"{name}(metrics={metrics!r}, modes={modes!r}): pass 'min' or 'max' for each metric",
    )
    require(
        isinstance(time_attr, str) and time_attr != "",
        f"{name}(time_attr={time_attr!r}): pass the name of a reported value",
    )
