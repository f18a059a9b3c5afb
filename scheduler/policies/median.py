"""The median stopping rule: a trial stops if it was never as good as the others on average."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from holdfast.scheduler.policies.goal import Judging, check_count, check_number
from holdfast.scheduler.policy import (
    Decision,
    NoMoreTrials,
    Observation,
    PauseTrial,
    Stalled,
    StopTrial,
    TrialAdded,
    TrialEnded,
    TrialReported,
    UnpauseTrial,
    View,
)


class TrialCurve:
    """The values of one trial, report by report."""

    def __init__(self) -> None:
        self.newest = -math.inf
        self.best = -math.inf
        self.begun_at = 0.0
        self._times: list[float] = []
        self._sums: list[float] = []

    def extend(self, time: float, value: float, *, counts: bool) -> None:
        """Add a value; `counts` says whether it counts in the average."""
        self.newest, self.best = time, max(self.best, value)
        if counts:
            self._sums.append(value + (self._sums[-1] if self._sums else 0.0))
            self._times.append(time)

    def average(self, until: float) -> float | None:
        """The running average up to that time; None if nothing counts yet."""
        known = bisect_right(self._times, until)
        return self._sums[known - 1] / known if known else None


class Cohort:
    """All trials, and the averages of those that have reached each time.

    If trials report at the same times, as with iterations, the averages at each time are kept
    sorted, so that computing the median does not visit every trial.
    """

    def __init__(self, grace_period: float) -> None:
        self.curves: dict[str, TrialCurve] = {}
        self._grace = grace_period
        self._seen: set[float] = set()
        # The times that at least two trials share, and the sorted averages at each.
        self._marks: list[float] = []
        self._averages: dict[float, list[float]] = {}

    def extend(self, trial_id: str, time: float, value: float) -> None:
        curve = self.curves.setdefault(trial_id, TrialCurve())
        before = curve.newest
        curve.extend(time, value, counts=time >= self._grace)
        for mark in self._marks[
            bisect_right(self._marks, before) : bisect_right(self._marks, time)
        ]:
            if (average := curve.average(mark)) is not None:
                insort(self._averages[mark], average)
        if time in self._averages:
            return
        if time in self._seen:
            insort(self._marks, time)
            self._averages[time] = sorted(self._all(time))
        self._seen.add(time)

    def others(self, trial_id: str, time: float) -> list[float]:
        """The sorted averages of the other trials that have reached `time`."""
        own = self.curves[trial_id].average(time)
        averages = self._averages.get(time) or sorted(self._all(time))
        if own is None:
            return averages
        place = bisect_left(averages, own)
        return averages[:place] + averages[place + 1 :]

    def _all(self, time: float) -> Iterator[float]:
        for curve in self.curves.values():
            if curve.newest >= time and (average := curve.average(time)) is not None:
                yield average


class MedianStoppingRule(Judging):
    """Stops a trial whose best value is worse than the median of the others' running averages.

    A trial is judged at each report from `grace_period` on (measured in `time_attr`, like all
    times here) against the other trials that have trained as long: each average covers the other
    trial's reports from `grace_period` to that time. By default it is 60 seconds, or 0 if
    `time_attr` is another one than the time. With fewer than `min_samples_required` others
    it continues.

    With a `min_time_slice` above 0, a trial that cannot be judged yet and has run that long since
    its last start pauses for trials that wait for resources. It continues when it can be judged,
    or when no other trial can run. With `hard_stop=False` a trial is paused instead of stopped,
    and runs to its end when all the others have ended. Both settings need checkpoints.

    Golovin, Solnik, Moitra, Kochanski, Karro, Sculley, "Google Vizier: A Service for Black-Box
    Optimization" (2017). If trials report at different times, as with seconds, each report takes
    time in proportion to the number of trials.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float | None = None,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        if grace_period is None:
            grace_period = 60.0 if time_attr == "time_total_s" else 0.0
        check_number(self, "grace_period", grace_period, least=0)
        check_number(self, "min_time_slice", min_time_slice, least=0)
        check_count(self, "min_samples_required", min_samples_required)
        self._grace, self._least = grace_period, min_samples_required
        self._slice, self._hard = min_time_slice, hard_stop
        self.needs_checkpoints = not hard_stop or min_time_slice > 0
        self._field = Cohort(grace_period)
        self._set_aside: set[str] = set()
        self._giving_way: list[str] = []
        self._search_ended = False

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        trial_id = event.trial_id
        if not self._note(trial_id, time, value):
            return ()
        decided = [] if trial_id in self._set_aside else self._rule(view, trial_id, time)
        return [*decided, *self._return()]

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, TrialEnded) and (last := self.final(view, event)):
            self._note(event.trial_id, *last)
        match event:
            case NoMoreTrials() | TrialAdded():  # an extension may add more
                self._search_ended = isinstance(event, NoMoreTrials)
            case Stalled():
                return self._recall(self._giving_way)
            case TrialEnded() if event.trial_id in self._giving_way:
                self._giving_way.remove(event.trial_id)
            case _:
                pass
        return () if self._has_waiting_trials(view) else self._recall(self._giving_way)

    def _note(self, trial_id: str, time: float, value: float) -> bool:
        """Record a report; return False if it repeats an earlier one after a failure."""
        known = self._field.curves.get(trial_id)
        if known is not None and time <= known.newest:
            return False
        self._field.extend(trial_id, time, value)
        return True

    def _rule(self, view: View, trial_id: str, time: float) -> list[Decision]:
        if time < self._grace:
            return []
        averages = self._field.others(trial_id, time)
        if len(averages) < self._least:
            return self._give_way(view, trial_id, time)
        best, middle = self._field.curves[trial_id].best, median(averages)
        if best >= middle:
            return []
        if self._hard:
            others = "other trial" if len(averages) == 1 else "other trials"
            why = (
                f"its best {self.goal.text(best)} at {self.goal.time_attr}={time:g} is worse than "
                f"{self.goal.text(middle)}, the median of {len(averages)} {others}"
            )
            return [StopTrial(trial_id=trial_id, why=why, is_early=True)]
        self._set_aside.add(trial_id)
        return [PauseTrial(trial_id=trial_id, may_restart=True)]

    def _give_way(self, view: View, trial_id: str, time: float) -> list[Decision]:
        curve = self._field.curves[trial_id]
        is_over = self._slice > 0 and time - curve.begun_at >= self._slice
        if not is_over or not self._has_waiting_trials(view):
            return []
        curve.begun_at = time
        self._giving_way.append(trial_id)
        return [PauseTrial(trial_id=trial_id, may_restart=True)]

    def _has_waiting_trials(self, view: View) -> bool:
        if not self._slice or not self._search_ended:
            return True
        return any(trial.waits_for_worker for trial in view.trials.values())

    def _return(self) -> list[Decision]:
        """Resume the paused trials that can be judged by now."""
        ripe = [trial_id for trial_id in self._giving_way if self._could_be_judged(trial_id)]
        return self._recall(ripe)

    def _could_be_judged(self, trial_id: str) -> bool:
        newest = self._field.curves[trial_id].newest
        return len(self._field.others(trial_id, newest)) >= self._least

    def _recall(self, several: Iterable[str]) -> list[Decision]:
        returning = list(several)
        self._giving_way = [known for known in self._giving_way if known not in returning]
        return [UnpauseTrial(trial_id=trial_id) for trial_id in returning]
