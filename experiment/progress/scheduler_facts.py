"""Decisions of a scheduler, as data and as a line: rungs and takeovers. Pure: no I/O."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import ExperimentSpec
from holdfast.text.trials import number, short_name
from holdfast.trial.trial import Status, Takeover, Trial
from holdfast.trial.values import readable, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class RungCount:
    """A rung: how many trials have reached it, and what became of them there.

    The rest of those that `reached` it ended there for another reason. `cutoff` is the value that
    the newest trial needed to continue, None if there is no such number. `bracket` is 0 for a
    scheduler with only one.
    """

    bracket: int
    milestone: float
    reached: int
    promoted: int
    stopped: int
    waiting: int
    cutoff: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverFact:
    """Trial `trial_id` continued from a checkpoint of trial `source`, with another config.

    It had trained to `iteration`, and continued from `source_iteration`. `changes` has its values
    before and after by name; `at` is in seconds since 1970.
    """

    trial_id: str
    source: str
    iteration: int
    source_iteration: int
    changes: Mapping[str, tuple[Any, Any]]
    at: float


def rung_counts(trials: Iterable[Trial]) -> list[RungCount]:
    """The rungs that trials have reached, by bracket, the lowest first."""
    several: dict[tuple[int, float], list[tuple[Trial, Any]]] = {}
    for trial in trials:
        for visit in trial.rungs:
            several.setdefault((visit.bracket, visit.milestone), []).append((trial, visit))
    return [_rung(*key, several[key]) for key in sorted(several)]


def _rung(bracket: int, milestone: float, visits: list[tuple[Trial, Any]]) -> RungCount:
    judged = [(visit.at, visit.cutoff) for _, visit in visits if visit.cutoff is not None]
    return RungCount(
        bracket=bracket,
        milestone=milestone,
        reached=len(visits),
        promoted=sum(visit.promoted is True for _, visit in visits),
        stopped=sum(visit.promoted is False for _, visit in visits),
        waiting=sum(v.promoted is None and t.status is Status.PAUSED for t, v in visits),
        cutoff=max(judged, key=lambda one: one[0])[1] if judged else None,
    )


def takeover_facts(trials: Iterable[Trial]) -> list[TakeoverFact]:
    """Every takeover, the oldest first."""
    found = [fact for trial in trials for fact in _takeovers_of(trial)]
    return sorted(found, key=lambda fact: fact.at)


def _takeovers_of(trial: Trial) -> Iterator[TakeoverFact]:
    if not trial.takeovers:
        return
    values = spread(trial.spec.config)
    for takeover in trial.takeovers:
        yield takeover_fact(trial.trial_id, takeover, values)
        values |= takeover.changes


def takeover_fact(trial_id: str, takeover: Takeover, before: Mapping[str, Any]) -> TakeoverFact:
    """The fact of a trial whose values were `before`, by name."""
    return TakeoverFact(
        trial_id=trial_id,
        source=takeover.source,
        iteration=takeover.iteration,
        source_iteration=takeover.source_iteration,
        changes={
            name: (readable(before.get(name)), readable(now))
            for name, now in takeover.changes.items()
        },
        at=takeover.at,
    )


class Tally:
    """Counts the decisions about trials, each trial once, for a line of text."""

    def __init__(self) -> None:
        self._reached: Counter[float] = Counter()
        self._promoted: Counter[float] = Counter()
        self._takeovers = 0
        self._newest: tuple[float, str, Takeover] | None = None

    def add(self, trial: Trial) -> None:
        for visit in trial.rungs:
            self._reached[visit.milestone] += 1
            self._promoted[visit.milestone] += visit.promoted is True
        if trial.takeovers:
            self._takeovers += len(trial.takeovers)
            last = trial.takeovers[-1]
            if self._newest is None or last.at >= self._newest[0]:
                self._newest = (last.at, trial.trial_id, last)

    def and_of(self, trials: Iterable[Trial]) -> Self:
        """A copy that has counted these trials, too."""
        both = copy.copy(self)
        both._reached, both._promoted = self._reached.copy(), self._promoted.copy()
        for trial in trials:
            both.add(trial)
        return both

    def line(self, spec: ExperimentSpec) -> str:
        """`ASHA rungs, promoted of reached: 1: 13/40, 3: 4/13, 9: 4`; "" for nothing."""
        name = short_name(spec.scheduler)
        if self._newest is not None:
            _, trial_id, newest = self._newest
            count = f"{self._takeovers} takeover{'s' * (self._takeovers > 1)}"
            return (
                f"{name}: {count}, the last at iteration {newest.iteration}: {number(trial_id)} "
                f"from {number(newest.source)}"
            )
        if not self._reached:
            return ""
        rungs = [
            f"{at:g}: {self._promoted[at]}/{count}" if self._promoted[at] else f"{at:g}: {count}"
            for at, count in sorted(self._reached.items())
        ]
        return f"{name} rungs, promoted of reached: {', '.join(rungs)}"
