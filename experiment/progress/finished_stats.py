"""Statistics of trials that have ended, so that a summary looks at each only once."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from holdfast.experiment.progress.eta import Past
from holdfast.experiment.progress.failure_text import cause, user_frame
from holdfast.experiment.progress.scheduler_facts import Tally
from holdfast.experiment.progress.stop_reasons import early_reason
from holdfast.experiment.progress.summary import MAX_FAILURES
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.stopper import lookup
from holdfast.trial.trial import Status, StopReason, Trial

# The number of trials whose lengths are kept for the estimate.
_LENGTHS = 200

_OF_ONE_CAUSE = 5

_Rank = tuple[float, float, int]


class FinishedStats:
    """Statistics of the trials that have ended: counts, times, the best and the first failures."""

    def __init__(self, spec: ExperimentSpec, keep: int) -> None:
        self.counts: Counter[Status] = Counter()
        self.failed: list[Trial] = []
        self.causes: Counter[tuple[str, str]] = Counter()
        self.newest_failed: deque[Trial] = deque(maxlen=max(1, keep))
        self.time_s = 0.0
        self.silent = self.unread = 0
        self._lengths_s: deque[float] = deque(maxlen=_LENGTHS)
        self._kept = self._broken = 0
        self._spec, self._keep = spec, max(1, keep)
        self.early: Counter[StopReason] = Counter()
        self.decided = Tally()
        self._ranked: dict[Status, list[tuple[_Rank, Trial]]] = {
            Status.TERMINATED: [],
            Status.ERROR: [],
        }

    def add(self, trial: Trial, expected: int | None = None) -> None:
        """Add a trial that has ended; `expected` is the iteration with which it should have
        ended."""
        self.counts[trial.status] += 1
        self.decided.add(trial)
        self.time_s += trial.time_total_s
        self.unread += trial.unread
        if trial.status is Status.TERMINATED:
            self.silent += trial.row is None
            if reason := early_reason(trial):
                self.early[reason] += 1
            self._lengths_s.append(trial.time_total_s)
            self._kept += trial.iteration == expected
            self._broken += expected not in (None, trial.iteration)
        else:
            self.newest_failed.appendleft(trial)
            self._add_failure(trial)
        ranked = self._ranked[trial.status]
        insort(ranked, (rank(trial, self._spec.metric, self._spec.mode), trial), key=itemgetter(0))
        del ranked[: -self._keep]

    def _add_failure(self, trial: Trial) -> None:
        """Keep the first trials of each cause, so that a frequent cause does not hide the
        others."""
        if trial.error is None:
            return
        key = cause(trial.error.headline, user_frame(trial.error))
        self.causes[key] += 1
        if self.causes[key] <= _OF_ONE_CAUSE and len(self.failed) < MAX_FAILURES:
            self.failed.append(trial)

    @property
    def past(self) -> Past:
        return Past(lengths_s=sorted(self._lengths_s), kept=self._kept, broken=self._broken)

    def best(self, status: Status) -> list[Trial]:
        """Best first; trials without a value last; without a metric the newest first."""
        return [trial for _, trial in reversed(self._ranked[status])]

    def leaders(self) -> list[Trial]:
        return [ranked[-1][1] for ranked in self._ranked.values() if ranked]


def rank(trial: Trial, metric: str | None, mode: str | None) -> _Rank:
    """The sort key of trials: the value and then, as in `get_best_result`, the lower index.

    Without a value, the later report wins. A trial that violates a constraint has none.
    """
    value = None if trial.is_infeasible else value_of(trial, metric)
    if value is None:
        return (-math.inf, trial.reported_at, -trial.spec.index)
    return (-value if mode == "min" else value, 0.0, -trial.spec.index)


def leader(trials: Iterable[Trial], metric: str | None, mode: str | None) -> Trial | None:
    """The best of the trials by `rank`; None if none has a value, or there is no goal."""
    best = max(trials, key=lambda trial: rank(trial, metric, mode), default=None)
    if best is None or mode is None or best.is_infeasible:
        return None
    return None if value_of(best, metric) is None else best


def value_of(trial: Trial, metric: str | None) -> float | None:
    """The trial's last value of `metric`; None if it is missing, not a number, NaN or infinite."""
    if metric is None or trial.row is None:
        return None
    value = trial.row.get(metric)
    if value is None:
        value = lookup({**trial.row, **_counted(trial)}, metric)
    return finite(value)


def finite(value: Any) -> float | None:
    """The value as a number; None if it is missing, not a number, NaN or infinite."""
    if type(value) not in (int, float) or not math.isfinite(value):
        return None
    return float(value)


def _counted(trial: Trial) -> dict[str, float]:
    return {"training_iteration": trial.iteration, "time_total_s": trial.time_total_s}
