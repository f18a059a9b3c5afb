"""From the machine to what is shown of it: counts, the trials worth a line, the best, failures."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.experiment.ended import Ended, rank, value_of
from holdfast.experiment.layout import ERROR
from holdfast.experiment.summary import (
    MAX_FAILURES,
    BestTrial,
    FailedTrial,
    RunFacts,
    StorageAge,
    Summary,
    TrialRow,
)
from holdfast.experiment.trial_view import varied
from holdfast.scheduler.machine import Machine
from holdfast.trial.errors import Failure
from holdfast.trial.readable import readable
from holdfast.trial.stopper import lookup
from holdfast.trial.trial import Status, Trial, TrialSpec
from holdfast.trial.values import Opaque, Ref, flatten

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)', re.M)
# In a checkout holdfast itself lies in none of the others.
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "<frozen", _OURS)
_AUTOMATIC = frozenset({"done", "timestamp", "training_iteration", "time_total_s"})


def summarize(
    machine: Machine,
    *,
    facts: RunFacts,
    now: float,
    storage: StorageAge | None = None,
    max_rows: int = 20,
    infer_limit: int = 3,
) -> Summary:
    """One look at a run, as `Summarizer.look` gives it."""
    looker = Summarizer(machine, max_rows=max_rows, infer_limit=infer_limit)
    return looker.look(facts=facts, now=now, storage=storage)


class Summarizer:
    """Summaries of one machine, each at the cost of what is alive rather than of what is done.

    A trial that has ended is looked at once: a fresh look at 10,000 of them takes 15 ms, too much
    for four times a second beside the control loop. The table has at most `max_rows` trials; its
    columns are the metric and numbers that the trials report, `infer_limit` in all.
    """

    def __init__(self, machine: Machine, *, max_rows: int = 20, infer_limit: int = 3) -> None:
        self._machine = machine
        self._max_rows = max_rows
        self._infer_limit = infer_limit
        self._forget()

    def look(self, *, facts: RunFacts, now: float, storage: StorageAge | None = None) -> Summary:
        """The run as it is at `now` (seconds since the epoch).

        May be called from a thread beside the one that changes the machine.
        """
        machine = self._machine
        metric, mode = machine.spec.metric, machine.spec.mode
        alive = self._take_in(list(machine.trials.values()))
        ended = self._ended
        shown = self._worth_a_line(alive)
        columns = _columns(shown, metric, self._infer_limit)
        rows = tuple(_row(trial, columns) for trial in shown)
        counts = Counter(trial.status for trial in alive) + ended.counts
        total = self._seen if machine.search_ended else facts.total
        elapsed_s = _elapsed(machine, now)
        return Summary(
            name=facts.name,
            path=facts.path,
            counts={status: counts[status] for status in Status if counts[status]},
            total=total,
            rows=rows,
            hidden=_hidden(counts, shown),
            metrics=columns,
            params=tuple(dict.fromkeys(key for row in rows for key in row.params)),
            metric=metric,
            mode=mode,
            best=_best([*alive, *ended.leaders()], metric, mode),
            failures=_failures(
                [*ended.failed, *(trial for trial in alive if _waits(trial))], facts
            ),
            elapsed_s=elapsed_s,
            left_s=_time_left(alive, ended, total, elapsed_s, machine.spec.time_budget_s),
            storage=storage,
            ending=machine.ending.message or machine.ending.reason if machine.ending else "",
            done=machine.finished,
        )

    def _forget(self) -> None:
        spec = self._machine.spec
        self._basis = (self._machine.epoch, spec)
        self._seen = 0
        self._alive: list[str] = []
        self._ended = Ended(spec.metric, spec.mode, self._max_rows)

    def _take_in(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials that have not ended, in their order; the others are folded in."""
        if self._basis != (self._machine.epoch, self._machine.spec):
            self._forget()  # a restore may have reopened trials that had ended
        newest = [self._machine.trials[trial_id] for trial_id in self._alive]
        newest += trials[self._seen :]
        self._seen = len(trials)
        alive = []
        for trial in newest:
            if trial.status.is_final:
                self._ended.add(trial)
            else:
                alive.append(trial)
        self._alive = [trial.trial_id for trial in alive]
        return alive

    def _worth_a_line(self, alive: Sequence[Trial]) -> list[Trial]:
        """Those at work, then the best of those that have ended, then those that wait."""
        at_work = [trial for trial in alive if trial.status.has_worker]
        paused = [trial for trial in alive if trial.status is Status.PAUSED]
        pending = [trial for trial in alive if trial.status is Status.PENDING]
        ended = self._ended
        best = [*ended.best(Status.TERMINATED), *ended.best(Status.ERROR)]
        return [*at_work, *paused, *best, *pending][: self._max_rows]


def _elapsed(machine: Machine, now: float) -> float:
    waited = now - machine.now if machine.now and not machine.finished else 0.0
    return machine.active_s + max(0.0, waited)


def _best(trials: Iterable[Trial], metric: str | None, mode: str | None) -> BestTrial | None:
    if metric is None or mode not in ("max", "min"):
        return None
    best = max(trials, key=lambda trial: rank(trial, metric, mode), default=None)
    value = value_of(best, metric) if best else None
    if best is None or value is None:
        return None
    return BestTrial(
        trial_id=best.trial_id,
        name=best.spec.name,
        metric=metric,
        value=value,
        params=_params(best.spec),
    )


def _hidden(counts: Mapping[Status, int], shown: Sequence[Trial]) -> dict[Status, int]:
    left = dict(counts)
    for trial in shown:
        left[trial.status] -= 1
    return {status: count for status, count in left.items() if count}


def _columns(shown: Sequence[Trial], metric: str | None, limit: int) -> tuple[str, ...]:
    names = dict.fromkeys([metric] if metric else [])
    for trial in shown:
        row = trial.row or {}
        for key in flatten(row):
            # What stands in a list is no metric of its own, and has no name that finds it.
            if type(lookup(row, key)) in (int, float) and key not in _AUTOMATIC:
                names.setdefault(key)
        if len(names) >= limit:
            break
    return tuple(names)[: max(limit, 1 if metric else 0)]


def _row(trial: Trial, columns: Sequence[str]) -> TrialRow:
    row = trial.row or {}
    values = {name: lookup(row, name) for name in columns}
    return TrialRow(
        trial_id=trial.trial_id,
        name=trial.spec.name,
        status=trial.status,
        params=_params(trial.spec),
        iteration=trial.iteration,
        time_total_s=trial.time_total_s,
        metrics={name: value for name, value in values.items() if type(value) in (int, float)},
        retries=_retries(trial),
    )


def _params(spec: TrialSpec) -> dict[str, Any]:
    return {
        name: readable(value) if isinstance(value, (Ref, Opaque)) else value
        for name, value in varied(spec).items()
    }


def _retries(trial: Trial) -> int:
    return trial.failures - (trial.status is Status.ERROR)


def _waits(trial: Trial) -> bool:
    """Whether it failed and has not been started again yet."""
    return trial.status is Status.PENDING and trial.error is not None


def _failures(failed: Sequence[Trial], facts: RunFacts) -> tuple[FailedTrial, ...]:
    return tuple(
        FailedTrial(
            trial_id=trial.trial_id,
            name=trial.spec.name,
            headline=trial.error.headline,
            where=user_frame(trial.error),
            error_file=f"{facts.local_path}/{trial.spec.dirname}/{ERROR}",
            retries=_retries(trial),
            final=trial.status is Status.ERROR,
        )
        for trial in failed[:MAX_FAILURES]
        if trial.error
    )


def user_frame(failure: Failure) -> str:
    """`train.py:42 in train`: the innermost frame outside of installed libraries and holdfast."""
    frames = list(_FRAME.finditer(failure.traceback))
    own = [frame for frame in frames if not any(mark in frame["file"] for mark in _LIBRARY)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame['file'].rpartition('/')[2]}:{frame['line']} in {frame['name']}"


def _time_left(
    alive: Iterable[Trial],
    ended: Ended,
    total: int | None,
    elapsed_s: float,
    budget_s: float | None,
) -> float | None:
    """From how much of the work is done; one at work counts by the mean time of the finished."""
    until_budget = None if budget_s is None else max(0.0, budget_s - elapsed_s)
    finished = ended.counts.total()
    if not ended.counts[Status.TERMINATED] or not total:
        return until_budget
    mean_s = ended.time_s / ended.counts[Status.TERMINATED] or math.inf
    times = (trial.time_total_s for trial in alive if trial.status.has_worker)
    begun = sum(min(0.9, time_s / mean_s) for time_s in times)
    share = min(1.0, (finished + begun) / total)
    left_s = elapsed_s * (1 - share) / share
    return left_s if until_budget is None else min(left_s, until_budget)
