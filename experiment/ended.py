"""What a summary keeps of trials that have ended, so that each has to be looked at only once."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from operator import itemgetter

from holdfast.experiment.summary import MAX_FAILURES
from holdfast.trial.stopper import lookup
from holdfast.trial.trial import Status, Trial

_Rank = tuple[float, float, int]


class Ended:
    """What stays of the trials that have ended: counts, times, the best and the first failures."""

    def __init__(self, metric: str | None, mode: str | None, keep: int) -> None:
        self.counts: Counter[Status] = Counter()
        self.failed: list[Trial] = []
        self.time_s = 0.0
        self._metric, self._mode, self._keep = metric, mode, max(1, keep)
        self._ranked: dict[Status, list[tuple[_Rank, Trial]]] = {
            Status.TERMINATED: [],
            Status.ERROR: [],
        }

    def add(self, trial: Trial) -> None:
        self.counts[trial.status] += 1
        if trial.status is Status.TERMINATED:
            self.time_s += trial.time_total_s
        elif len(self.failed) < MAX_FAILURES:
            self.failed.append(trial)
        ranked = self._ranked[trial.status]
        insort(ranked, (rank(trial, self._metric, self._mode), trial), key=itemgetter(0))
        del ranked[: -self._keep]

    def best(self, status: Status) -> list[Trial]:
        """Best first; those without a value last; without a metric the newest first."""
        return [trial for _, trial in reversed(self._ranked[status])]

    def leaders(self) -> list[Trial]:
        return [ranked[-1][1] for ranked in self._ranked.values() if ranked]


def rank(trial: Trial, metric: str | None, mode: str | None) -> _Rank:
    """What trials are compared by: the value and, as in `get_best_result`, the lower index; the
    later report where there is no value."""
    value = value_of(trial, metric)
    if value is None:
        return (-math.inf, trial.reported_at, -trial.spec.index)
    return (-value if mode == "min" else value, 0.0, -trial.spec.index)


def value_of(trial: Trial, metric: str | None) -> float | None:
    """The trial's last value of `metric`; None where it is missing, no number, NaN or infinite."""
    if metric is None or trial.row is None:
        return None
    value = trial.row.get(metric)
    if value is None:
        value = lookup({**trial.row, **_counted(trial)}, metric)
    if type(value) not in (int, float) or not math.isfinite(value):
        return None
    return float(value)


def _counted(trial: Trial) -> dict[str, float]:
    return {"training_iteration": trial.iteration, "time_total_s": trial.time_total_s}
