"""Asynchronous successive halving: at each rung the better part goes on, and nobody waits."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Self

from holdfast.scheduler.chance import Chance
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.goal import Judging, is_number
from holdfast.scheduler.policies.quantile import RunningQuantile
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    StopTrial,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.trial.errors import require


class Rung:
    """What trials were worth when they had come as far as `milestone`."""

    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        self._quantile = RunningQuantile(1 - 1 / reduction_factor)
        self._judged: set[str] = set()

    def has_judged(self, trial_id: str) -> bool:
        return trial_id in self._judged

    @property
    def cutoff(self) -> float | None:
        """What the best of every `reduction_factor` are worth at least, between two of them in
        proportion; None where nobody has come so far."""
        return self._quantile.value

    def record(self, trial_id: str, value: float) -> None:
        self._quantile.add(value)
        self._judged.add(trial_id)


class AshaBracket:
    """Rungs from the lowest to the highest; one with a higher `start` halves less often."""

    def __init__(
        self, start: int, *, grace_period: float, max_t: float, reduction_factor: float
    ) -> None:
        halvings = math.log(max_t / grace_period, reduction_factor)
        # 3 ** 4 is 81, and its logarithm 3.9999999999999996
        last = math.floor(halvings + 1e-9)
        self.rungs = [
            Rung(grace_period * reduction_factor**power, reduction_factor)
            for power in range(start, last + 1)
        ]
        self._milestones = [rung.milestone for rung in self.rungs]

    def goes_on(self, trial_id: str, time: float, value: float) -> bool:
        """Whether a trial that is worth `value` after `time` is among the best so far.

        It is judged once at each rung, the highest that it has reached. One that has diverged
        goes on only where it is the first.
        """
        reached = bisect(self._milestones, time)
        if not reached:
            return True
        rung = self.rungs[reached - 1]
        if rung.has_judged(trial_id):
            return True
        cutoff = rung.cutoff
        rung.record(trial_id, value)
        return cutoff is None or (value >= cutoff and value > -math.inf)


class ASHAScheduler(Judging):
    """Stops a trial at each rung unless it is among the best of those that came so far.

    The rungs lie at `grace_period`, and then each `reduction_factor` times as far, up to `max_t`,
    measured in `time_attr`; of those that reach one about 1 of `reduction_factor` goes on. With
    several `brackets` each trial belongs to one of them, by chance; the rungs of bracket s begin
    at grace_period * reduction_factor ** s. At `max_t` a trial is stopped, unless
    `stop_last_trials` is False.

    Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar, "A System for Massively
    Parallel Hyperparameter Tuning" (2020), in the form that stops trials and needs no checkpoints.

    Raises InvalidConfig.
    """

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
        name = type(self).__name__
        require(
            type(brackets) is int and brackets > 0,
            f"{name}(brackets={brackets!r}): give a whole number above 0",
        )
        self._max_t, self._stops_last = max_t, stop_last_trials
        self._brackets = [
            AshaBracket(
                start, grace_period=grace_period, max_t=max_t, reduction_factor=reduction_factor
            )
            for start in range(brackets)
        ]
        require(
            bool(self._brackets[-1].rungs),
            f"{name}(brackets={brackets}): between grace_period={grace_period!r} and "
            f"max_t={max_t!r} there is room for {len(self._brackets[0].rungs)} at most",
        )
        self._seed = 0

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._seed = spec.seed
        return fresh

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        bracket = self._bracket(event.trial_id)
        goes_on = bracket.goes_on(event.trial_id, time, value)
        if not goes_on or (self._stops_last and time >= self._max_t):
            return [StopTrial(trial_id=event.trial_id)]
        return ()

    def look(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, TrialEnded) and (last := self.final(view, event)):
            self._bracket(event.trial_id).goes_on(event.trial_id, *last)
        return ()

    def _bracket(self, trial_id: str) -> AshaBracket:
        if len(self._brackets) == 1:
            return self._brackets[0]
        rungs = [len(bracket.rungs) for bracket in self._brackets]
        return self._brackets[drawn_bracket(trial_id, rungs, seed=self._seed)]


def drawn_bracket(trial_id: str, rungs: Sequence[int], *, seed: int) -> int:
    """To which of the brackets, that have so many rungs, a trial belongs: by chance, one with more
    rungs more often, in proportion to e to their number."""
    shares = list(accumulate(math.exp(count - rungs[0]) for count in rungs))
    return bisect(shares, Chance(f"{seed}/bracket/{trial_id}").random() * shares[-1])


AsyncHyperBandScheduler = ASHAScheduler


def check_grace(scheduler: TrialScheduler, grace_period: float, max_t: float) -> None:
    """Raises InvalidConfig."""
    name = type(scheduler).__name__
    require(
        is_number(grace_period, least=0, above=True),
        f"{name}(grace_period={grace_period!r}): give a number above 0",
    )
    require(
        grace_period <= max_t,
        f"{name}(grace_period={grace_period!r}, max_t={max_t!r}): no trial would ever come "
        f"as far as grace_period, so give max_t at least that",
    )


def check_halving(scheduler: TrialScheduler, max_t: float, reduction_factor: float) -> None:
    """Raises InvalidConfig."""
    name = type(scheduler).__name__
    require(
        is_number(max_t, least=0, above=True),
        f"{name}(max_t={max_t!r}): give how far a trial may come, a number above 0",
    )
    require(
        is_number(reduction_factor, least=1, above=True),
        f"{name}(reduction_factor={reduction_factor!r}): give a number above 1",
    )
