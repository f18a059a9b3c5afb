"""HyperBand: successive halving in brackets. A trial pauses at a milestone until the others
arrive. Also the scheduler of DEHB, which takes each trial's budget from its config.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.asha import check_halving
from holdfast.scheduler.policies.goal import Judging
from holdfast.scheduler.policy import (
    Abort,
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

KEY: Final = "dehb"
"""The key in a config that holds the trial's job of DEHB."""


class DEHBScheduler(Judging):
    """Stops each trial at the budget that DEHBSearch gave it: `config["dehb"]["budget"]`.

    The budget is measured in `time_attr`; the first report at or after it that has the metric is
    the last one. A function may also read its budget and return by itself.

    Awad, Mallik, Hutter, "DEHB: Evolutionary Hyberband for Scalable, Robust and Efficient
    Hyperparameter Optimization" (2021).

    Raises InvalidConfig.
    """

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        budget = _budget_of(view.trials[event.trial_id].config)
        if budget is None:
            message = (
                f"DEHBScheduler: the config of trial {event.trial_id} has no budget. Set "
                "TuneConfig(search_alg=DEHBSearch(...)), which gives each trial one"
            )
            return [Abort(message=message)]
        if time < budget:
            return ()
        why = f"{self.goal.time_attr} reached its budget, {budget:g}"
        return [StopTrial(trial_id=event.trial_id, why=why, is_early=False)]


def _budget_of(config: Mapping[str, Any]) -> float | None:
    job = config.get(KEY)
    budget = job.get("budget") if isinstance(job, Mapping) else None
    return budget if isinstance(budget, (int, float)) else None


# log(81, 3) is 3.9999999999999996.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a bracket: it begins with `places` trials, and at each of `milestones` 1 in
    `reduction_factor` continues. The last survivors run to the end."""

    places: int
    milestones: tuple[float, ...]
    reduction_factor: float

    def survivors(self, entered: int) -> int:
        """How many of `entered` trials continue: at least one."""
        return max(1, math.floor(entered / self.reduction_factor + _ROUNDING))


def shapes(max_t: float, reduction_factor: float) -> list[Shape]:
    """The brackets of one round, from the one that halves most often to the one that never does.

    They all take about the same amount of training. Li et al. (2018), algorithm 1.
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
    """A trial has reached its milestone: at `time` its value was `value`, more is better."""

    time: float
    value: float


class HyperBandBracket:
    """Trials that are halved together.

    A trial that ends before its milestone drops out, and no other takes its place: it still counts
    as one that entered.
    """

    def __init__(self, shape: Shape, number: int = 0) -> None:
        self._shape = shape
        self.number = number
        self._rung = 0
        # The trials that entered this rung, in the order in which they were added.
        self._members: dict[str, Arrival | None] = {}
        self._awaited: set[str] = set()
        self._ended: set[str] = set()

    @property
    def has_room(self) -> bool:
        """True if another trial can begin here."""
        return self._rung == 0 and len(self._members) < self._shape.places

    @property
    def is_over(self) -> bool:
        """True if all its milestones are passed."""
        return self._rung == len(self._shape.milestones)

    @property
    def milestone(self) -> float:
        return self._shape.milestones[self._rung]

    @property
    def members(self) -> list[str]:
        return list(self._members)

    @property
    def arrived(self) -> dict[str, Arrival]:
        """The living trials that have reached the milestone."""
        return {
            trial_id: arrival
            for trial_id, arrival in self._members.items()
            if arrival is not None and trial_id not in self._ended
        }

    @property
    def is_complete(self) -> bool:
        """True if all living trials have reached the milestone."""
        return not self._awaited

    @property
    def awaited(self) -> list[str]:
        """The living trials that have not reached the milestone."""
        return [trial_id for trial_id in self._members if trial_id in self._awaited]

    def add(self, trial_id: str) -> None:
        self._members[trial_id] = None
        self._awaited.add(trial_id)

    def note(self, trial_id: str, time: float, value: float) -> None:
        """Record a report; the first at or after the milestone counts."""
        self._ended.discard(trial_id)
        if self._members[trial_id] is not None:
            return
        self._awaited.add(trial_id)
        if time >= self.milestone:
            self._members[trial_id] = Arrival(time=time, value=value)
            self._awaited.discard(trial_id)

    def leave(self, trial_id: str) -> None:
        """The trial has ended. Only a restore can resume it."""
        self._ended.add(trial_id)
        self._awaited.discard(trial_id)

    def halve(self) -> list[str]:
        """Advance the best trials to the next milestone; return the other living ones."""
        arrived = self.arrived
        best = set(_best(arrived, self._shape.survivors(len(self._members))))
        self._rung += 1
        self._ended = set()
        self._members = {
            trial_id: arrival if self._is_at_milestone(arrival) else None
            for trial_id, arrival in arrived.items()
            if trial_id in best
        }
        self._awaited = {one for one, arrival in self._members.items() if arrival is None}
        return [trial_id for trial_id in arrived if trial_id not in best]

    def _is_at_milestone(self, arrival: Arrival) -> bool:
        """True if a trial that reports seldom has already reached the next milestone."""
        return not self.is_over and arrival.time >= self.milestone


def _best(arrived: Mapping[str, Arrival], most: int) -> list[str]:
    """The best; of equal ones, those added first. A diverged trial only if all have diverged."""
    ranked = sorted(arrived, key=lambda trial_id: -arrived[trial_id].value)
    sound = [trial_id for trial_id in ranked if arrived[trial_id].value > -math.inf]
    return sound[:most] or ranked[:1]


class HyperBandScheduler(Judging):
    """Successive halving in brackets of different sizes.

    With s_max = floor(log(max_t) / log(reduction_factor)), bracket s has ceil((s_max + 1) / (s +
    1) * reduction_factor ** s) places. Trials fill the brackets in the order in which they are
    added, s from s_max to 0 and then from s_max again. The first milestone of bracket s is max_t /
    reduction_factor ** s, in units of `time_attr`, and each further one is `reduction_factor`
    times as far. A trial that reaches its milestone pauses there. When all living trials have
    reached it, the best 1 in `reduction_factor` continue, at least one, and the others are
    stopped. A trial stops at `max_t`, unless `stop_last_trials` is False.

    Of equal trials, those added first continue. A trial that fails or ends before its milestone
    counts as worse than all living ones. A trial whose metric is not finite continues only if all
    are like that, and then only one does. If a trial reports seldom, its first report after a
    milestone counts for that milestone. If the search has no more trials for a bracket, or none
    until others have continued, the bracket is halved with the trials that it has.

    A finished trial that a restore resumes belongs to its bracket unless that has been halved
    since; otherwise it runs to `max_t`.

    Trials must save checkpoints: those that continue do so from their checkpoints, on any worker.

    Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, "Hyperband: A Novel Bandit-Based Approach to
    Hyperparameter Optimization" (2018).

    Raises InvalidConfig.
    """

    needs_checkpoints = True
    # The number of each trial's bracket.
    _numbers: dict[str, int]

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
        # The brackets that will be halved again, by trial.
        self._brackets: dict[str, HyperBandBracket] = {}
        self._expects_more = True

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._numbers = {}
        return fresh

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        trial_id = event.trial_id
        if self._stops_last and time >= self._max_t:
            number = self._numbers.get(trial_id, 0)
            note = self.rung_note(trial_id, self._max_t, value, None, bracket=number)
            return [note, self.at_most(trial_id, self._max_t)]
        bracket = self._brackets.get(trial_id)
        if bracket is None:
            return ()
        bracket.note(trial_id, time, value)
        decisions = [*self._halve_if_due(bracket)]
        if self._brackets.get(trial_id) is bracket and time >= bracket.milestone:
            note = self.rung_note(trial_id, bracket.milestone, value, None, bracket=bracket.number)
            decisions += [note, PauseTrial(trial_id=trial_id, may_restart=True)]
        return decisions

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
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
                return [*self._halve_incomplete(view)]
            case _:
                pass
        return ()

    def _add(self, trial_id: str) -> None:
        self._expects_more = True
        if self._newest is None or not self._newest.has_room:
            shape = self._shapes[self._opened % len(self._shapes)]
            self._newest = HyperBandBracket(shape, self._opened)
            self._opened += 1
        self._newest.add(trial_id)
        self._numbers[trial_id] = self._newest.number
        if not self._newest.is_over:
            self._brackets[trial_id] = self._newest

    def _halve_if_due(self, bracket: HyperBandBracket) -> Iterator[Decision]:
        while bracket.is_complete and not bracket.is_over:
            if bracket.has_room and self._expects_more:
                return
            yield from self._halve(bracket)

    def _halve(self, bracket: HyperBandBracket) -> Iterator[Decision]:
        before, arrived, milestone = bracket.members, bracket.arrived, bracket.milestone
        stopped = dict.fromkeys(bracket.halve())
        kept = () if bracket.is_over else bracket.members
        for trial_id in set(before).difference(kept):
            del self._brackets[trial_id]
        best = [one.value for trial_id, one in arrived.items() if trial_id not in stopped]
        cutoff = min(best, default=-math.inf)
        for trial_id, one in arrived.items():
            is_promoted, number = trial_id not in stopped, bracket.number
            yield self.rung_note(
                trial_id, milestone, one.value, is_promoted, cutoff=cutoff, bracket=number
            )
        for trial_id in stopped:
            why = self.goal.worse(arrived[trial_id].value, arrived[trial_id].time, cutoff)
            yield StopTrial(trial_id=trial_id, why=why, is_early=True)
        yield from (UnpauseTrial(trial_id=trial_id) for trial_id in bracket.awaited)

    def _halve_incomplete(self, view: View) -> Iterator[Decision]:
        """Halve the brackets with the trials that have arrived: nothing runs, and the search adds
        no trial until one continues."""
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
    """`HyperBandScheduler` as BOHB needs it, for use with `tune.search.bohb.TuneBOHB`.

    It decides as its base class does: brackets are filled from s_max to 0 and from s_max again,
    promoted trials run before new ones, and while a bracket waits for its last trials the next one
    begins (section 4.2 of the paper). TuneBOHB sees every report, and so the value of each trial
    at each milestone. It counts budgets in `training_iteration`, so leave `time_attr` at its
    default.

    Falkner, Klein, Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale"
    (2018).

    Raises InvalidConfig.
    """
