"""Counters of a running simulation. Their memory does not grow with the reports."""

from __future__ import annotations

import math
from collections import Counter

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import Event
from holdfast.trial.events import Reported
from holdfast.trial.stopper import lookup
from holdfast.trial.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """From `elapsed_s` (seconds since the start) this trial had the best value."""

    elapsed_s: float
    value: float
    trial_id: str
    iteration: int


class Tally:
    """`metric` and `mode` are the goal, or None."""

    def __init__(self, metric: str | None, mode: str | None) -> None:
        self._metric = metric if mode else None
        self._sign = 1.0 if mode == "max" else -1.0
        self.incumbents: list[Incumbent] = []
        self.best: dict[str, float] = {}
        self.furthest: dict[str, int] = {}
        self.faults: Counter[str] = Counter()
        self.reports = self.repeated = 0
        self.trained_s = self.busy_s = 0.0

    def saw(self, event: Event, before: Trial | None, after: Trial | None, now_s: float) -> None:
        """Count an event of a trial; messages of ended attempts change nothing."""
        if after is None or after is before:
            return
        if isinstance(event, Reported):
            self._count(event, now_s)

    def _count(self, event: Reported, now_s: float) -> None:
        trial_id = event.trial_id
        self.reports += 1
        self.trained_s += event.time_this_iter_s
        if event.iteration > self.furthest.get(trial_id, 0):
            self.furthest[trial_id] = event.iteration
        else:
            self.repeated += 1
        if self._metric is None:
            return
        value = lookup(event.metrics, self._metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            self._compare(event, float(value), now_s)

    def _compare(self, event: Reported, value: float, now_s: float) -> None:
        own = self.best.get(event.trial_id)
        if own is None or self._sign * (value - own) > 0:
            self.best[event.trial_id] = value
        if not self.incumbents or self._sign * (value - self.incumbents[-1].value) > 0:
            found = Incumbent(
                elapsed_s=now_s,
                value=value,
                trial_id=event.trial_id,
                iteration=event.iteration,
            )
            self.incumbents.append(found)
