"""PASHA: successive halving that trains longer only while the ranking still changes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from holdfast.scheduler.policies.asha import check_grace, check_halving
from holdfast.scheduler.policies.goal import Judging, check_number
from holdfast.scheduler.policy import (
    Decision,
    NoMoreTrials,
    NoteRung,
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
from holdfast.trial.trial import Status


class WaitingRung:
    """The trials that have reached `milestone`, best first, and those of them that wait there."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.values: dict[str, float] = {}
        # Less is better; ties go to the trial that arrived first.
        self._ranked: list[tuple[float, int, str]] = []
        self._waiting: list[tuple[float, int, str]] = []
        self.waiting: set[str] = set()

    def enter(self, trial_id: str, value: float, *, waits: bool) -> None:
        place = (-value, len(self.values), trial_id)
        self.values[trial_id] = value
        insort(self._ranked, place)
        if waits:
            insort(self._waiting, place)
            self.waiting.add(trial_id)

    def cutoff(self, reduction_factor: float) -> float | None:
        """The value of the last of the best 1 in `reduction_factor`; None if that is none."""
        room = math.floor(len(self._ranked) / reduction_factor)
        return -self._ranked[room - 1][0] if room else None

    def promote(self, reduction_factor: float) -> list[str]:
        """Release and return the waiting trials among the best 1 in `reduction_factor`."""
        room = math.floor(len(self._ranked) / reduction_factor)
        count = 0
        for place in self._waiting:
            if place[0] == math.inf or bisect_left(self._ranked, place) >= room:
                break
            count += 1
        return self._release(count)

    def release_best(self) -> list[str]:
        return self._release(1)

    def ranking(self, among: Iterable[str]) -> list[str]:
        """The trials of `among` that have reached this rung, best first."""
        wanted = set(among)
        return [trial_id for _, _, trial_id in self._ranked if trial_id in wanted]

    def _release(self, count: int) -> list[str]:
        released, self._waiting = self._waiting[:count], self._waiting[count:]
        self.waiting.difference_update(trial_id for _, _, trial_id in released)
        return [trial_id for _, _, trial_id in released]


class Pair:
    """Two learning curves: how often they have crossed, and their last distance."""

    def __init__(self) -> None:
        self.crossings = 0
        self.distance = 0.0
        self._is_above: bool | None = None

    def see(self, one: float, other: float) -> None:
        """Add the values of both at the next time that they share."""
        self.distance = abs(one - other)
        if one == other:
            return
        is_above = one > other
        self.crossings += self._is_above is (not is_above)
        self._is_above = is_above


class Noise:
    """The largest difference of two trials' values that is noise: `epsilon`.

    Two learning curves that cross back and forth are considered equal. `epsilon` is a high
    percentile of the distances between such curves at the last time that they share.
    """

    def __init__(self, percentile: float) -> None:
        self.epsilon = 0.0
        self._share = percentile / 100
        self._curves: dict[str, dict[float, float]] = {}
        # The trials with a value after the time that counts, and their pairs.
        self._beyond: dict[str, None] = {}
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._distances: list[float] = []

    def newest(self, trial_id: str) -> float:
        """The time of the trial's last value."""
        return next(reversed(self._curves.get(trial_id, {})), -math.inf)

    def extend(self, trial_id: str, time: float, value: float, *, since: float) -> None:
        """Add a value. Only values after `since` count for the noise."""
        self._curves.setdefault(trial_id, {})[time] = value
        if time <= since:
            return
        for other in self._beyond:
            if other != trial_id and time in self._curves[other]:
                self._compare(min(trial_id, other), max(trial_id, other), time)
        self._beyond[trial_id] = None
        if self._distances:
            self.epsilon = percentile(self._distances, self._share)

    def restart(self) -> None:
        """Forget the distances; `epsilon` stays until there are new ones."""
        self._beyond, self._pairs, self._distances = {}, {}, []

    def _compare(self, one: str, other: str, time: float) -> None:
        """Compare two trials at the newest times that they share."""
        pair = self._pairs.get((one, other))
        first, second = self._curves[one], self._curves[other]
        if pair is None:
            pair = self._pairs[one, other] = Pair()
            times = sorted(first.keys() & second.keys())
        else:
            times = [time]
            self._forget(pair)
        for at in times:
            pair.see(first[at], second[at])
        if _is_noise(pair):
            insort(self._distances, pair.distance)

    def _forget(self, pair: Pair) -> None:
        if _is_noise(pair):
            del self._distances[bisect_left(self._distances, pair.distance)]


def _is_noise(pair: Pair) -> bool:
    return pair.crossings > 1 and math.isfinite(pair.distance)


def percentile(ranked: Sequence[float], share: float) -> float:
    """The percentile of sorted values, interpolated."""
    place = (len(ranked) - 1) * share
    low, high = ranked[math.floor(place)], ranked[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def is_stable(top: WaitingRung, below: WaitingRung, epsilon: float) -> bool:
    """True if two rungs rank the trials of the upper rung alike, up to noise.

    For each place in the two rankings, the values that the two trials had on the lower rung differ
    by at most `epsilon`.
    """
    now, before = top.ranking(top.values), below.ranking(top.values)
    return all(
        below.values[here] == below.values[there]
        or abs(below.values[here] - below.values[there]) <= epsilon
        for here, there in zip(now, before, strict=True)
    )


class PASHAScheduler(Judging):
    """Successive halving that trains longer only while the ranking still changes.

    As in ASHA, the first rung is at `grace_period` and each further one `reduction_factor` times
    as far, but the last is at `max_t`. A trial that reaches a rung pauses, and continues as soon
    as it is among the best 1 in `reduction_factor` there. At first no trial continues beyond the
    second rung. Whenever a trial reaches the highest open rung, the ranking there is compared with
    the ranking of the same trials one rung below: if a trial has changed its place by more than
    noise, the next rung opens. The noise is estimated from learning curves that cross (the
    `noise_percentile` of their distances). When the search has ended and no trial can continue,
    the waiting ones are stopped: the best is known, though it may not have trained to `max_t`. If
    a search waits for trials to end before it suggests more, the best trial at the highest rung
    continues.

    This is the variant that promotes, as in the paper: trials that wait at the highest rung must
    be able to continue when the next one opens. So it needs checkpoints.

    Bohdal, Balles, Wistuba, Ermis, Archambeau, Zappella, "PASHA: Efficient HPO and NAS with
    Progressive Resource Allocation" (2023).

    Raises InvalidConfig.
    """

    needs_checkpoints = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 3,
        noise_percentile: float = 90,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_halving(self, max_t, reduction_factor)
        check_grace(self, grace_period, max_t)
        check_number(self, "noise_percentile", noise_percentile, least=0, most=100)
        milestones = []
        while grace_period < max_t:
            milestones.append(grace_period)
            grace_period *= reduction_factor
        self._milestones: list[float] = [*milestones, max_t]
        self._factor = reduction_factor
        self._rungs = [WaitingRung(milestone) for milestone in self._milestones]
        self._top = min(1, len(self._milestones) - 1)
        self._noise = Noise(noise_percentile)
        # The highest rung that each trial has reached.
        self._at: dict[str, int] = {}
        self._search_ended = False

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        trial_id = event.trial_id
        reached, at = bisect_right(self._milestones, time) - 1, self._at.get(trial_id, -1)
        if time > self._noise.newest(trial_id):
            since = self._rungs[max(0, self._top - 1)].milestone
            self._noise.extend(trial_id, time, value, since=since)
        if reached > at:
            return self._arrive(trial_id, reached, value)
        # A trial that failed to save its checkpoint reaches the rung again.
        waits = reached == at >= 0 and trial_id in self._rungs[at].waiting
        return [PauseTrial(trial_id=trial_id)] if waits else ()

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case NoMoreTrials() | TrialAdded():  # an extension may add more
                self._search_ended = isinstance(event, NoMoreTrials)
                return ()
            case TrialEnded() if last := self.final(view, event):
                return self._note_last(event.trial_id, *last)
            case Stalled():
                return self._end(view) if self._search_ended else self._resume_best()
            case _:
                return ()

    def _arrive(self, trial_id: str, reached: int, value: float) -> list[Decision]:
        last = len(self._rungs) - 1
        passed = range(self._at.get(trial_id, -1) + 1, reached)
        self._enter(trial_id, reached, value, waits=reached < last)
        promoted = self._promote()
        own: list[Decision] = [self._note(trial_id, index, True) for index in passed]
        own.append(self._note(trial_id, reached, True if trial_id in promoted else None))
        if reached == last:
            own.append(self.at_most(trial_id, self._milestones[-1]))
        elif trial_id not in promoted:
            own.append(PauseTrial(trial_id=trial_id))
        return [*own, *self._release(one for one in promoted if one != trial_id)]

    def _note(self, trial_id: str, index: int, promoted: bool | None) -> NoteRung:
        rung = self._rungs[index]
        value, cutoff = rung.values[trial_id], rung.cutoff(self._factor)
        return self.rung_note(trial_id, rung.milestone, value, promoted, cutoff=cutoff)

    def _release(self, several: Iterable[str]) -> list[Decision]:
        decisions: list[Decision] = []
        for trial_id in several:
            decisions.append(self._note(trial_id, self._at[trial_id], True))
            decisions.append(UnpauseTrial(trial_id=trial_id))
        return decisions

    def _note_last(self, trial_id: str, time: float, value: float) -> list[Decision]:
        """Record the last report of a trial that reached one of the user's bounds."""
        reached = bisect_right(self._milestones, time) - 1
        if reached <= self._at.get(trial_id, -1):
            return []
        self._enter(trial_id, reached, value, waits=False)
        return [self._note(trial_id, reached, None), *self._release(self._promote())]

    def _enter(self, trial_id: str, reached: int, value: float, *, waits: bool) -> None:
        for index in range(self._at.get(trial_id, -1) + 1, reached + 1):
            self._rungs[index].enter(trial_id, value, waits=waits and index == reached)
        self._at[trial_id] = reached
        if reached >= self._top:
            self._open()

    def _open(self) -> None:
        """Open the next rung unless the two highest agree in their rankings."""
        top = self._top
        if top == len(self._rungs) - 1 or top == 0:
            return
        if not is_stable(self._rungs[top], self._rungs[top - 1], self._noise.epsilon):
            self._top += 1
            self._noise.restart()

    def _promote(self) -> list[str]:
        return [
            trial_id
            for rung in self._rungs[: self._top]
            for trial_id in rung.promote(self._factor)
        ]

    def _resume_best(self) -> list[Decision]:
        for rung in reversed(self._rungs):
            if released := rung.release_best():
                return self._release(released)
        return []

    def _end(self, view: View) -> list[Decision]:
        """Stop the trials that wait at rungs. First resume those that are paused for another
        reason."""
        paused = [t.trial_id for t in view.trials.values() if t.status is Status.PAUSED]
        waiting = [one for one in paused if any(one in rung.waiting for rung in self._rungs)]
        if len(waiting) < len(paused):
            return [UnpauseTrial(trial_id=one) for one in paused if one not in waiting]
        return [one for trial_id in waiting for one in self._stop(trial_id)]

    def _stop(self, trial_id: str) -> list[Decision]:
        """End a trial for which there is nothing more to learn. Those that came furthest have
        finished: the ranking is that of their rung."""
        at = self._at[trial_id]
        rung, is_early = self._rungs[at], at < max(self._at.values())
        cutoff = rung.cutoff(self._factor)
        if not is_early:
            why = f"the ranking at {self._time_attr}={rung.milestone:g} is settled"
        elif cutoff is None:
            why = f"too few trials reached {self._time_attr}={rung.milestone:g} to continue"
        else:
            why = self.goal.worse(rung.values[trial_id], rung.milestone, cutoff)
        note = self._note(trial_id, at, False if is_early else None)
        return [note, StopTrial(trial_id=trial_id, why=why, is_early=is_early)]
