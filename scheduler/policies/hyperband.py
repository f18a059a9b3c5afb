"""HyperBand: successive halving in brackets; who is first at a milestone waits there, paused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.scheduler.policies.asha import check_halving
from holdfast.scheduler.policies.goal import Judging
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
from holdfast.trial.trial import Status

# 3 ** 4 is 81, and its logarithm 3.9999999999999996
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a bracket begins: with `places` trials, of which each part of `reduction_factor` goes on
    at each of `milestones`, and what is left then runs to the end."""

    places: int
    milestones: tuple[float, ...]
    reduction_factor: float

    def survivors(self, entered: int) -> int:
        """How many of so many go on: at least one does."""
        return max(1, math.floor(entered / self.reduction_factor + _ROUNDING))


def shapes(max_t: float, reduction_factor: float) -> list[Shape]:
    """The brackets of one round, from the one that halves most often to the one that never does.

    They all take about as much training. Li et al. (2018), algorithm 1.
    """
    halvings = max(0, math.floor(math.log(max_t, reduction_factor) + _ROUNDING))
    return [
        Shape(
            places=math.ceil((halvings + 1) / (s + 1) * reduction_factor**s - _ROUNDING),
            milestones=tuple(max_t / reduction_factor**power for power in range(s, 0, -1)),
            reduction_factor=reduction_factor,
        )
        for s in range(halvings, -1, -1)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A trial has come to its milestone: at `time` it was worth `value`, more is better."""

    time: float
    value: float


class HyperBandBracket:
    """Trials that are halved together.

    A trial that ends before its milestone does not go on, and leaves its place to nobody: it
    counts among those that there were.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._rung = 0
        # Those that began this rung, in the order in which they were added.
        self._members: dict[str, Arrival | None] = {}
        self._awaited: set[str] = set()
        self._ended: set[str] = set()

    @property
    def has_room(self) -> bool:
        """Whether another trial can begin here."""
        return self._rung == 0 and len(self._members) < self._shape.places

    @property
    def is_over(self) -> bool:
        """Whether nobody is halved here any more."""
        return self._rung == len(self._shape.milestones)

    @property
    def milestone(self) -> float:
        return self._shape.milestones[self._rung]

    @property
    def members(self) -> list[str]:
        return list(self._members)

    @property
    def is_complete(self) -> bool:
        """Whether all the living have come to the milestone."""
        return not self._awaited

    @property
    def awaited(self) -> list[str]:
        """The living that are still on their way."""
        return [trial_id for trial_id in self._members if trial_id in self._awaited]

    def add(self, trial_id: str) -> None:
        self._members[trial_id] = None
        self._awaited.add(trial_id)

    def note(self, trial_id: str, time: float, value: float) -> None:
        """Take in a report: the first one at the milestone, or beyond it, counts."""
        self._ended.discard(trial_id)
        if self._members[trial_id] is not None:
            return
        self._awaited.add(trial_id)
        if time >= self.milestone:
            self._members[trial_id] = Arrival(time=time, value=value)
            self._awaited.discard(trial_id)

    def leave(self, trial_id: str) -> None:
        """The trial has ended; unless a restore takes it up again, it does not come any more."""
        self._ended.add(trial_id)
        self._awaited.discard(trial_id)

    def halve(self) -> list[str]:
        """Let the best go on to the next milestone; returns the others that live."""
        arrived = {
            trial_id: arrival
            for trial_id, arrival in self._members.items()
            if arrival is not None and trial_id not in self._ended
        }
        best = set(_best(arrived, self._shape.survivors(len(self._members))))
        self._rung += 1
        self._ended = set()
        self._members = {
            trial_id: arrival if self._is_there(arrival) else None
            for trial_id, arrival in arrived.items()
            if trial_id in best
        }
        self._awaited = {one for one, arrival in self._members.items() if arrival is None}
        return [trial_id for trial_id in arrived if trial_id not in best]

    def _is_there(self, arrival: Arrival) -> bool:
        """Whether a trial that reports seldom is at the milestone already."""
        return not self.is_over and arrival.time >= self.milestone


def _best(arrived: Mapping[str, Arrival], most: int) -> list[str]:
    """Of equal ones the first added; what has diverged only where there is nothing else."""
    ranked = sorted(arrived, key=lambda trial_id: -arrived[trial_id].value)
    sound = [trial_id for trial_id in ranked if arrived[trial_id].value > -math.inf]
    return sound[:most] or ranked[:1]


class HyperBandScheduler(Judging):
    """Successive halving in brackets, each of which begins with other numbers of trials.

    With s_max = floor(log(max_t) / log(reduction_factor)), bracket s has
    ceil((s_max + 1) / (s + 1) * reduction_factor ** s) places. Trials fill the brackets in the
    order in which they are added, s from s_max to 0 and then from s_max again. The first milestone
    of bracket s is max_t / reduction_factor ** s, in units of `time_attr`, and each other one is
    `reduction_factor` times as far. A trial that comes to its milestone is paused there. When all
    that live have come, the best 1 of `reduction_factor` go on, at least one, and the others are
    stopped. At `max_t` a trial is stopped, unless `stop_last_trials` is False.

    Of equal trials those go on that were added first. A trial that fails, or ends by itself,
    before its milestone counts as worse than all that live. One whose metric is not finite goes on
    only where all are so, and then only one does. Where a trial reports seldom, the first report
    beyond a milestone counts for it. If the search has no trial left for a bracket, or none before
    others have gone on, the bracket is halved with those that it has.

    A trial that a restore takes up after its end belongs to its bracket as long as that has not
    been halved since; otherwise it runs to `max_t`.

    Trials must save checkpoints: those that go on do so from there, on any worker.

    Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, "Hyperband: A Novel Bandit-Based Approach to
    Hyperparameter Optimization" (2018).

    Raises InvalidConfig.
    """

    needs_checkpoints = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_halving(self, max_t, reduction_factor)
        self._max_t, self._stops_last = max_t, stop_last_trials
        self._shapes = shapes(max_t, reduction_factor)
        self._opened = 0
        self._newest: HyperBandBracket | None = None
        # Those that are still to be halved.
        self._brackets: dict[str, HyperBandBracket] = {}
        self._expects_more = True

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        trial_id = event.trial_id
        if self._stops_last and time >= self._max_t:
            return [StopTrial(trial_id=trial_id)]
        bracket = self._brackets.get(trial_id)
        if bracket is None:
            return ()
        bracket.note(trial_id, time, value)
        decisions = [*self._halve_if_due(bracket)]
        if self._brackets.get(trial_id) is bracket and time >= bracket.milestone:
            decisions.append(PauseTrial(trial_id=trial_id))
        return decisions

    def look(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialAdded(trial_id=trial_id):
                self._add(trial_id)
            case TrialEnded(trial_id=trial_id) if bracket := self._brackets.get(trial_id):
                bracket.leave(trial_id)
                return [*self._halve_if_due(bracket)]
            case NoMoreTrials():
                self._expects_more = False
                return [] if self._newest is None else [*self._halve_if_due(self._newest)]
            case Stalled():
                return [*self._go_on_anyway(view)]
            case _:
                pass
        return ()

    def _add(self, trial_id: str) -> None:
        self._expects_more = True
        if self._newest is None or not self._newest.has_room:
            self._newest = HyperBandBracket(self._shapes[self._opened % len(self._shapes)])
            self._opened += 1
        self._newest.add(trial_id)
        if not self._newest.is_over:
            self._brackets[trial_id] = self._newest

    def _halve_if_due(self, bracket: HyperBandBracket) -> Iterator[Decision]:
        while bracket.is_complete and not bracket.is_over:
            if bracket.has_room and self._expects_more:
                return
            yield from self._halve(bracket)

    def _halve(self, bracket: HyperBandBracket) -> Iterator[Decision]:
        before, stopped = bracket.members, bracket.halve()
        kept = () if bracket.is_over else bracket.members
        for trial_id in set(before).difference(kept):
            del self._brackets[trial_id]
        yield from (StopTrial(trial_id=trial_id) for trial_id in stopped)
        yield from (UnpauseTrial(trial_id=trial_id) for trial_id in bracket.awaited)

    def _go_on_anyway(self, view: View) -> Iterator[Decision]:
        """Nothing runs, and no trial is added before one goes on: nobody else will come."""
        brackets = list(dict.fromkeys(self._brackets.values()))
        awaited = [trial_id for bracket in brackets for trial_id in bracket.awaited]
        paused = [one for one in awaited if view.trials[one].status is Status.PAUSED]
        if paused:
            yield from (UnpauseTrial(trial_id=trial_id) for trial_id in paused)
            return
        for bracket in brackets:
            for trial_id in bracket.awaited:
                bracket.leave(trial_id)
            yield from self._halve(bracket)
            yield from self._halve_if_due(bracket)


class HyperBandForBOHB(HyperBandScheduler):
    """`HyperBandScheduler` as BOHB needs it, to be used with `tune.search.bohb.TuneBOHB`.

    It decides as its base does: brackets are filled from s_max to 0 and from s_max again, trials
    that are promoted run before new ones, and while a bracket waits for its last trials the next
    one begins (section 4.2 of the paper). TuneBOHB is told of every report, and so of what trials
    are worth at each milestone. It counts budgets in `training_iteration`, so leave `time_attr`.

    Falkner, Klein, Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale"
    (2018).

    Raises InvalidConfig.
    """
