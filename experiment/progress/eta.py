"""Estimates when a run will end, from how long its trials take. Pure: no I/O.

The length of a trial is estimated from the number of iterations that it will make, if `stop` or
its configuration states it and other trials have kept to it; otherwise from the lengths of other
trials that took longer than it has taken so far. Waiting trials are then distributed over as many
slots as trials run at once, so that a long last trial counts. Without such data there is no
estimate.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.trial import Trial
from holdfast.trial.values import LOOP_CONFIG

# Names under which training scripts read their number of epochs.
EPOCHS = ("num_epochs", "epochs", "max_epochs", "n_epochs", "num_train_epochs")
# Longer queues are spread evenly: distributing 1,000 trials takes 0.5 ms, four times a second.
_DEALT = 128
# The number of looks, at about four a second, over which the number of running trials is smoothed.
_RECENT = 20
# A trial that has taken longer than all others is expected to take this fraction longer.
_OVERTIME = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The progress of an unfinished trial, in seconds and iterations.

    `spent_s` is training time up to its newest report, `since_s` the time since then. `last` is
    the iteration with which it is expected to end, None if not known.
    """

    spent_s: float
    since_s: float
    iteration: int
    last: int | None
    at_work: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The statistics of trials that finished well.

    `lengths_s` are their lengths in rising order; `kept` is how many ended with the expected
    iteration, `broken` how many did not.
    """

    lengths_s: Sequence[float] = ()
    kept: int = 0
    broken: int = 0

    @property
    def trust(self) -> float:
        """The reliability of expected iterations, from 0 to 1."""
        known = self.kept + self.broken
        return self.kept / known if known else 1.0

    @property
    def mean_s(self) -> float | None:
        return sum(self.lengths_s) / len(self.lengths_s) if self.lengths_s else None


def epochs_of(config: Mapping[str, Any]) -> int | None:
    """The number of epochs in the configuration of a training script."""
    parts: Sequence[Any] = (config, config.get(LOOP_CONFIG))
    for part in parts:
        for name in EPOCHS if isinstance(part, Mapping) else ():
            value: Any = part.get(name)
            if type(value) is int and value >= 1:
                return value
    return None


def last_iteration(trial: Trial, bound: float | None, epochs: int | None) -> int | None:
    """The iteration with which the trial is expected to end.

    That is the `bound` of its iterations, or its number of `epochs` if it seems to report once per
    epoch.
    """
    last = None if bound is None else max(1, math.ceil(bound))
    if epochs is None or epochs < trial.iteration or not _counts_epochs(trial):
        return last
    return epochs if last is None else min(last, epochs)


def _counts_epochs(trial: Trial) -> bool:
    epoch = (trial.row or {}).get("epoch")
    if type(epoch) not in (int, float):
        return True
    return epoch in (trial.iteration, trial.iteration - 1)


def share_done(course: Course, past: Past) -> float:
    """The fraction of a trial that is done, from 0 to 1; 0 if not known."""
    left_s = remaining_s(course, past)
    spent_s = course.spent_s + course.since_s
    return spent_s / (spent_s + left_s) if left_s is not None and spent_s > 0 else 0.0


def remaining_s(course: Course, past: Past) -> float | None:
    """Seconds of training that the trial will still take; None without an estimate."""
    planned_s, usual_s = _planned_s(course), _usual_s(course, past.lengths_s)
    if planned_s is None or usual_s is None:
        return usual_s if planned_s is None else planned_s
    return past.trust * planned_s + (1 - past.trust) * usual_s


def _planned_s(course: Course) -> float | None:
    if course.last is None or not course.iteration:
        return None
    each_s = course.spent_s / course.iteration
    # A slow current iteration says nothing about the next ones.
    begun_s = min(course.since_s, each_s)
    return max(0.0, (course.last - course.iteration) * each_s - begun_s)


def _usual_s(course: Course, lengths_s: Sequence[float]) -> float | None:
    if not lengths_s:
        return None
    spent_s = course.spent_s + course.since_s
    longer = lengths_s[bisect_right(lengths_s, spent_s) :]
    return sum(longer) / len(longer) - spent_s if longer else _OVERTIME * spent_s


def time_left_s(
    courses: Iterable[Course],
    past: Past,
    *,
    to_come: int,
    slots: int,
    overhead_s: float = 0.0,
) -> float | None:
    """Seconds until the last trial ends; None without an estimate.

    `to_come` trials do not exist yet, `slots` run at once; `overhead_s` is the time that a trial
    takes in addition to its training, such as its start.
    """
    working: list[float] = []
    waiting: list[float] = []
    lengths = []
    just_begun = 0
    for course in courses:
        left_s = remaining_s(course, past)
        if left_s is not None:
            lengths.append(course.spent_s + course.since_s + left_s)
            (working if course.at_work else waiting).append(left_s)
        elif course.at_work and not course.spent_s:
            just_begun += 1
        elif course.spent_s:
            return None  # there is no way to estimate this trial
        else:
            to_come += 1
    mean_s = past.mean_s
    if mean_s is None and lengths:
        mean_s = sum(lengths) / len(lengths)
    if mean_s is None:
        return None
    working += [mean_s] * just_begun
    waiting = [left_s + overhead_s for left_s in waiting]
    return _dealt(working, waiting, to_come, mean_s + overhead_s, max(1, slots, len(working)))


def _dealt(
    working: Sequence[float], waiting: Sequence[float], more: int, each_s: float, slots: int
) -> float:
    """The time of the last end if each free slot takes the next trial."""
    ends = [*working, *[0.0] * (slots - len(working))]
    dealt = min(more, max(0, _DEALT - len(waiting)))
    heapq.heapify(ends)
    spread_s = (more - dealt) * each_s / slots
    for left_s in (*waiting, *[each_s] * dealt):
        heapq.heapreplace(ends, ends[0] + left_s)
    return max(ends) + spread_s


class Throughput:
    """Number of trials at once and the overhead of each, as observed since this process
    began."""

    def __init__(self) -> None:
        self._seen_at: float | None = None
        self._began_s = self._busy_s = 0.0
        self._began_ended = 0
        self._at_work: deque[int] = deque(maxlen=_RECENT)
        self.overhead_s = 0.0

    @property
    def slots(self) -> int:
        """The largest number at work recently: a trial that has just ended is about to be
        replaced."""
        return max(self._at_work, default=1)

    def record(self, now: float, at_work: int, ended: int, trained_s: float) -> None:
        """Record the state at `now`: trials at work, trials `ended`, and the training time of
        all."""
        self._at_work.append(at_work)
        if self._seen_at is None:
            self._began_s, self._began_ended = trained_s, ended
        else:
            self._busy_s += at_work * max(0.0, now - self._seen_at)
        self._seen_at = now
        if ended > self._began_ended:
            idle_s = max(0.0, self._busy_s - (trained_s - self._began_s))
            self.overhead_s = idle_s / (ended - self._began_ended + at_work)
