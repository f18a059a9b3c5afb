"""ASHA for several metrics at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.asha import check_grace, check_halving
from holdfast.scheduler.policies.goal import MODES, Goal, timeless
from holdfast.scheduler.policies.pareto import Fronts, Point
from holdfast.scheduler.policy import (
    Abort,
    Decision,
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


class FrontRung:
    """What trials were worth, by each metric, when they had come as far as `milestone`."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self._fronts = Fronts()
        self._judged: set[str] = set()

    def goes_on(self, trial_id: str, point: Point, reduction_factor: float) -> bool:
        """Whether a trial is among the best of those that came so far; it is judged once."""
        if trial_id in self._judged:
            return True
        self._judged.add(trial_id)
        number = self._fronts.add(point)
        count = max(1, math.floor(len(self._fronts) / reduction_factor))
        if len(self._fronts) > 1 and point[0] == -math.inf:
            return False
        return self._fronts.is_among_first(number, count)


class MultiObjectiveASHAScheduler(TrialScheduler):
    """Successive halving for several metrics: stops a trial at each rung unless it is among the
    best of those that came so far.

    `metrics` and `modes` name what is to be small or large, one "min" or "max" each. The rungs lie
    at `grace_period`, and then each `reduction_factor` times as far, up to `max_t`, measured in
    `time_attr`; at `max_t` a trial is stopped. Of n that came to a rung the first
    n / reduction_factor go on, at least one. Their order is by non-dominated sorting: first those
    that nobody beats, then those that only these beat, and so on. Of the last ones of which not
    all go on, an epsilon-net is taken, which covers them well, beginning with the best by the
    first metric. A trial one of whose values is not finite is the worst by all of them.

    A report that lacks one of the metrics is passed over; if it is the first of all, the run ends.
    `TuneConfig(metric=...)` may name one of them, for `get_best_result()`, or none.

    Schmucker, Donini, Zafar, Salinas, Archambeau, "Multi-objective Asynchronous Successive
    Halving" (2021), in the form that stops trials and needs no checkpoints.

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
        # 3 ** 4 is 81, and its logarithm 3.9999999999999996
        last = math.floor(math.log(max_t / grace_period, reduction_factor) + 1e-9)
        self._rungs = [
            FrontRung(grace_period * reduction_factor**power) for power in range(last, -1, -1)
        ]
        self._is_first = True

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
            self._note_last(view.trials[event.trial_id])
        if not isinstance(event, TrialReported):
            return ()
        is_first, self._is_first = self._is_first, False
        if is_first and (text := self._lacking(event.row)):
            return [Abort(message=text)]
        time, point = self._goals[0].time(event.row), self._point(event.row)
        if time is None:
            return [Abort(message=timeless(self, self._goals[0].time_attr, event.row))]
        if point is None or self._goes_on(event.trial_id, time, point):
            return ()
        return [StopTrial(trial_id=event.trial_id)]

    def _note_last(self, trial: Trial) -> None:
        """A report that reached a bound of the user's counts, too."""
        if trial.row is None:
            return
        row = row_of(trial)
        time, point = self._goals[0].time(row), self._point(row)
        if time is not None and point is not None:
            self._goes_on(trial.trial_id, time, point)

    def _goes_on(self, trial_id: str, time: float, point: Point) -> bool:
        rung = next((rung for rung in self._rungs if rung.milestone <= time), None)
        is_good = rung is None or rung.goes_on(trial_id, point, self._factor)
        return is_good and time < self._max_t

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
            f"{', '.join(map(repr, lacking))}.{near_text(lacking, row)} Reported were: "
            f"{names_text(row)}"
        )


def _check_goals(name: str, metrics: object, modes: object, time_attr: object) -> None:
    """Raises InvalidConfig."""
    for what, given in (("metrics", metrics), ("modes", modes)):
        is_list = isinstance(given, Sequence) and not isinstance(given, str)
        require(is_list, f"{name}({what}={given!r}): give a list")
    assert isinstance(metrics, Sequence)
    assert isinstance(modes, Sequence)
    are_names = all(isinstance(metric, str) and metric for metric in metrics)
    require(
        are_names and len(metrics) > 1 and len(set(metrics)) == len(metrics),
        f"{name}(metrics={metrics!r}): give the names of two or more values that are reported",
    )
    require(
        len(modes) == len(metrics) and all(mode in MODES for mode in modes),
        f"{name}(metrics={metrics!r}, modes={modes!r}): give 'min' or 'max' for each metric",
    )
    require(
        isinstance(time_attr, str) and time_attr != "",
        f"{name}(time_attr={time_attr!r}): give the name of a value that is reported",
    )
