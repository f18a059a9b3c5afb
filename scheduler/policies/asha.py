"""Asynchronous successive halving, by one metric or several: at each rung the best trials
continue, without waiting.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.goal import (
    Chance,
    Goal,
    Judging,
    check_count,
    check_number,
)
from holdfast.scheduler.policies.pareto import Fronts, Point
from holdfast.scheduler.policy import (
    Abort,
    Decision,
    Observation,
    StopTrial,
    Tell,
    TrialAdded,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.trial.errors import require
from holdfast.trial.metrics import MODES, names_text, near_text
from holdfast.trial.trial import Trial


class RunningQuantile:
    """Divides the numbers so far: `share` of them, from 0 to 1, are below its `value`.

    The lower numbers are in one heap and the others in a second one, so that adding a number takes
    logarithmic time. In a sorted list, adding moves half of the numbers: 30 µs at 100,000.
    """

    __slots__ = ("_above", "_below", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._below: list[float] = []  # negated, so that the largest comes first
        self._above: list[float] = []

    @property
    def value(self) -> float | None:
        """The quantile, interpolated; None if there are no numbers."""
        if not self._below:
            return None
        place = self._place
        part = place - math.floor(place)
        low = -self._below[0]
        # Between equal numbers, rounding could exceed them.
        if not part or self._above[0] == low:
            return low
        return (1 - part) * low + part * self._above[0]

    def add(self, number: float) -> None:
        if self._below and number < -self._below[0]:
            heappush(self._below, -number)
        else:
            heappush(self._above, number)
        count = math.floor(self._place) + 1
        while len(self._below) < count:
            heappush(self._below, -heappop(self._above))
        while len(self._below) > count:
            heappush(self._above, -heappop(self._below))

    @property
    def _place(self) -> float:
        """The index of the quantile in a sorted list, counted from 0; may be fractional."""
        return (len(self._below) + len(self._above) - 1) * self._share


class Judgement(NamedTuple):
    """Whether a trial continues at a rung, and the value that it needed for that."""

    milestone: float
    is_promoted: bool
    cutoff: float | None


class Rung:
    """The values of trials when they reached `milestone`."""

    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        # Its value is what the best 1 / `reduction_factor` reach, interpolated.
        self._quantile = RunningQuantile(1 - 1 / reduction_factor)
        self._judged: set[str] = set()

    def judge(self, trial_id: str, value: float) -> Judgement | None:
        """Whether a trial with this `value` is among the best so far; None if it was judged
        before. One that has diverged continues only if it is the first."""
        if trial_id in self._judged:
            return None
        cutoff = self._quantile.value
        self._quantile.add(value)
        self._judged.add(trial_id)
        is_promoted = cutoff is None or (value >= cutoff and value > -math.inf)
        return Judgement(self.milestone, is_promoted, cutoff)


class FrontRung:
    """The values of trials, by each metric, when they reached `milestone`."""

    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        self._factor = reduction_factor
        self._fronts = Fronts()
        self._judged: set[str] = set()

    def judge(self, trial_id: str, value: Point) -> Judgement | None:
        """As `Rung.judge`; there is no one value that a trial needs."""
        if trial_id in self._judged:
            return None
        self._judged.add(trial_id)
        number = self._fronts.add(value)
        count = max(1, math.floor(len(self._fronts) / self._factor))
        is_promoted = (
            len(self._fronts) == 1 or value[0] > -math.inf
        ) and self._fronts.is_among_first(number, count)
        return Judgement(self.milestone, is_promoted, None)


class AshaBracket:
    """The rungs from the lowest to the highest."""

    def __init__(self, rungs: Sequence[Rung | FrontRung]) -> None:
        self.rungs = rungs
        self._milestones = [rung.milestone for rung in rungs]

    def judge(self, trial_id: str, time: float, value: Any) -> Judgement | None:
        """Whether a trial with this `value` at this `time` is among the best so far.

        It is judged at the highest rung that it has reached; None if it was, or has reached none.
        """
        reached = bisect(self._milestones, time)
        return self.rungs[reached - 1].judge(trial_id, value) if reached else None


class ASHAScheduler(Judging):
    """Stops a trial at each rung unless it is among the best that have reached it.

    The first rung is at `grace_period`, and each further one `reduction_factor` times as far, up
    to `max_t`, measured in `time_attr`. About 1 in `reduction_factor` of the trials that reach a
    rung continues. With several `brackets`, each trial belongs to one of them at random; the rungs
    of bracket s begin at grace_period * reduction_factor ** s, and if that is above `max_t`, its
    trials train to `max_t`. A trial stops at `max_t`, unless `stop_last_trials` is False.

    Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar, "A System for Massively
    Parallel Hyperparameter Tuning" (2020), in the variant that stops trials and needs no
    checkpoints.

    Raises InvalidConfig.
    """

    _rung: type[Rung] | type[FrontRung] = Rung
    _has_warned_of_brackets = False

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_halving(self, max_t, reduction_factor)
        check_grace(self, grace_period, max_t)
        check_count(self, "brackets", brackets)
        self._max_t, self._stops_last = max_t, stop_last_trials
        # log(81, 3) is 3.9999999999999996.
        last = math.floor(math.log(max_t / grace_period, reduction_factor) + 1e-9)
        milestones = [grace_period * reduction_factor**power for power in range(last + 1)]
        self._brackets = [
            AshaBracket([self._rung(one, reduction_factor) for one in milestones[start:]])
            for start in range(brackets)
        ]

    def recall(self, view: View) -> bool:
        """From the rungs of the trials: in which order they were reached makes no difference."""
        if type(self) is not ASHAScheduler or not view.has_all_rungs:
            return False
        trials = [trial for trial in view.trials.values() if not trial.spec.confirms]
        self._has_warned_of_brackets = bool(trials)
        return all(self._recall_trial(trial) for trial in trials)

    def _recall_trial(self, trial: Trial) -> bool:
        if not trial.rungs:
            return not self._is_due(trial)
        for visit in trial.rungs:
            brackets = self._brackets[visit.bracket : visit.bracket + 1]
            rungs = [rung for one in brackets for rung in one.rungs]
            at = [rung for rung in rungs if rung.milestone == visit.milestone]
            if not at:
                return False
            value: Any = self.goal.of_own(visit.value)
            at[0].judge(trial.trial_id, value)
        return True

    def _is_due(self, trial: Trial) -> bool:
        """True if its last report has reached a rung, so that it lacks a note of one."""
        last = self.numbers(trial)
        rungs = self._brackets[self._bracket(trial.trial_id)].rungs
        return last is not None and bool(rungs) and last[0] >= rungs[0].milestone

    def judge(
        self, view: View, event: TrialReported, time: float, value: Any
    ) -> Sequence[Decision]:
        trial_id, number = event.trial_id, self._bracket(event.trial_id)
        judged = self._brackets[number].judge(trial_id, time, value)
        if self._stops_last and time >= self._max_t:
            return [
                *self._note(trial_id, judged, value, None),
                self.at_most(trial_id, self._max_t),
            ]
        if judged is None:
            return ()
        note = self._note(trial_id, judged, value, judged.is_promoted)
        if judged.is_promoted:
            return note
        why = self.goal.worse(value, time, judged.cutoff)
        return [*note, StopTrial(trial_id=trial_id, why=why, is_early=True)]

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
        """Count the last report of a trial that reached one of the user's bounds."""
        if isinstance(event, TrialAdded):
            return self._warn_of_brackets()
        if not isinstance(event, TrialEnded) or not (last := self.final(view, event)):
            return ()
        trial_id, (time, value) = event.trial_id, last
        judged = self._brackets[self._bracket(trial_id)].judge(trial_id, time, value)
        return self._note(trial_id, judged, value, None)

    def _warn_of_brackets(self) -> list[Decision]:
        """Say once that some brackets stop no trial early."""
        useful = sum(bool(bracket.rungs) for bracket in self._brackets)
        if useful == len(self._brackets) or self._has_warned_of_brackets:
            return []
        self._has_warned_of_brackets = True
        text = (
            f"{type(self).__name__}(brackets={len(self._brackets)}): there is room for {useful} "
            f"up to max_t={self._max_t:g}, so the trials of the others train to max_t"
        )
        return [Tell(text=text)]

    def _note(
        self, trial_id: str, judged: Judgement | None, value: Any, promoted: bool | None
    ) -> list[Decision]:
        if judged is None:
            return []
        milestone, _, cutoff = judged
        bracket = self._bracket(trial_id)
        return [
            self.rung_note(trial_id, milestone, value, promoted, cutoff=cutoff, bracket=bracket)
        ]

    def _bracket(self, trial_id: str) -> int:
        """The number of the trial's bracket."""
        if len(self._brackets) == 1:
            return 0
        rungs = [len(bracket.rungs) for bracket in self._brackets]
        return drawn_bracket(trial_id, rungs, seed=self._seed)


def drawn_bracket(trial_id: str, rungs: Sequence[int], *, seed: int) -> int:
    """The bracket that a trial belongs to, drawn at random; `rungs` has each bracket's number of
    rungs.

    Brackets with more rungs are more likely, in proportion to e to their number of rungs.
    """
    shares = list(accumulate(math.exp(count - rungs[0]) for count in rungs))
    return bisect(shares, Chance(f"{seed}/bracket/{trial_id}").random() * shares[-1])


AsyncHyperBandScheduler = ASHAScheduler
LADDER: Final[Mapping[str, Any]] = {
    "max_t": 3**20,
    "grace_period": 3,
    "reduction_factor": 3,
    "stop_last_trials": False,
}
"""The settings of ASHA where nobody gives any. Ray's, whose first rung is the first report, are
not shown better than random search on the external tasks of docs/quality.md; these are."""


class AutoScheduler(ASHAScheduler):
    """Successive halving without settings: the companion of `AutoSearch`.

    A trial is judged at its reports 3, 9, 27 and so on, as far as it trains, and about one in
    three continues. Trials that report once or twice run to their end.

    Raises InvalidConfig.
    """

    plan = "at its reports 3, 9, 27 and so on, about one trial in three continues"

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        super().__init__(metric=metric, mode=mode, **LADDER)


def check_grace(scheduler: TrialScheduler, grace_period: float, max_t: float) -> None:
    """Raise InvalidConfig unless `grace_period` is a number above 0 and at most `max_t`."""
    check_number(scheduler, "grace_period", grace_period, least=0, above=True)
    require(
        grace_period <= max_t,
        f"{type(scheduler).__name__}(grace_period={grace_period!r}, max_t={max_t!r}): no trial "
        "would ever reach grace_period, so pass a max_t that is at least as large",
    )


def check_halving(scheduler: TrialScheduler, max_t: float, reduction_factor: float) -> None:
    """Raise InvalidConfig unless `max_t` is a number above 0 and `reduction_factor` one above
    1."""
    what = "the most that a trial may train, a number above 0"
    check_number(scheduler, "max_t", max_t, least=0, above=True, what=what)
    check_number(scheduler, "reduction_factor", reduction_factor, least=1, above=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Several goals at once, in place of one `Goal`: a value is a point."""

    several: tuple[Goal, ...]
    reduction_factor: float

    @property
    def time_attr(self) -> str:
        return self.several[0].time_attr

    def time(self, row: Mapping[str, Any]) -> float | None:
        return self.several[0].time(row)

    def value(self, row: Mapping[str, Any]) -> Point | None:
        """The values of a row, by each goal; None if it lacks one."""
        values = [value for goal in self.several if (value := goal.value(row)) is not None]
        if len(values) < len(self.several):
            return None
        return values if -math.inf not in values else [-math.inf] * len(values)

    def own(self, value: Point | None) -> None:
        """A point is not a number that people could be shown."""

    def worse(self, value: Point, time: float, cutoff: None) -> str:
        """Why a trial stops at a rung."""
        values = ", ".join(map(Goal.text, self.several, value))
        among = f"among the best 1 in {self.reduction_factor:g}"
        return f"{values} at {self.time_attr}={time:g} is not {among}"


class MultiObjectiveASHAScheduler(ASHAScheduler):
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

    _rung = FrontRung

    def __init__(
        self,
        metrics: Sequence[str],
        modes: Sequence[str],
        time_attr: str = "training_iteration",
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 3,
    ) -> None:
        _check_goals(type(self).__name__, metrics, modes)
        super().__init__(
            time_attr, max_t=max_t, grace_period=grace_period, reduction_factor=reduction_factor
        )
        several = zip(metrics, modes, strict=True)
        self._goals = Goals(
            several=tuple(Goal(metric=m, mode=mode, time_attr=time_attr) for m, mode in several),
            reduction_factor=reduction_factor,
        )
        self._is_first = True

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it judges by."""
        return tuple(goal.metric for goal in self._goals.several)

    @property
    def modes(self) -> tuple[str, ...]:
        """The mode of each metric."""
        return tuple(goal.mode for goal in self._goals.several)

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._is_first = spec.strict_metric
        return fresh

    def goal_of(self, spec: ExperimentSpec) -> Goals:
        for goal in self._goals.several:
            require(
                goal.metric != spec.metric or spec.mode in (goal.mode, None),
                f"{type(self).__name__} has {goal.metric!r} with mode {goal.mode!r}, and "
                f"TuneConfig(metric={spec.metric!r}, mode={spec.mode!r}): make them agree",
            )
        return self._goals

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, TrialReported):
            is_first, self._is_first = self._is_first, False
            if is_first and (text := self._lacking(event.row)):
                return [Abort(message=text)]
        return super().decide(view, event)

    def lacks(self, event: TrialReported, *, is_timed: bool) -> Sequence[Decision]:
        return () if is_timed else super().lacks(event, is_timed=False)

    def _lacking(self, row: Mapping[str, Any]) -> str:
        lacking = [goal.metric for goal in self._goals.several if goal.value(row) is None]
        if not lacking:
            return ""
        return (
            f"{type(self).__name__}: the first report has no number named "
            f"{', '.join(map(repr, lacking))}.{near_text(lacking, row)} Reported: "
            f"{names_text(row)}"
        )


def _check_goals(name: str, metrics: object, modes: object) -> None:
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
