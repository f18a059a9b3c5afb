"""Whether an experiment runs, has ended, or was cut off: by its records, its lock, its age."""

from __future__ import annotations

from enum import StrEnum

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.finished_stats import rank, value_of
from holdfast.experiment.results.trial_count import has_rest
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.stopping import RESUMABLE
from holdfast.trial.trial import Status, Trial

# Storage hears of a run each `sync_period`, and soon after each checkpoint: one that has been
# silent for two periods and this long has ended, or cannot reach its storage.
_GRACE_S = 60.0
_SYNC_PERIOD_S = 300.0
_BY_AN_ERROR = ("abort", "fail_fast", "errored")


class Condition(StrEnum):
    """How it stands with an experiment."""

    LIVE = "live"  # a process holds its lock, or storage has heard of it a moment ago
    FINISHED = "finished"  # every trial has ended, none with an error
    ERRORED = "errored"  # it has ended, and a trial or the whole of it with an error
    INTERRUPTED = "interrupted"  # it was stopped or killed: a restore finishes the rest
    NEVER_BEGUN = "not begun"  # it ended before its first record
    UNREADABLE = "unreadable"  # its records cannot be read: the doctor says more


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What tells from outside that an experiment lives.

    `holder` is who holds its lock on this machine, "" for nobody. `heard_at` is when storage
    heard of it last (seconds since 1970, by the clock of the storage), None where it lies here.
    """

    holder: str = ""
    heard_at: float | None = None


def condition_of(machine: Machine, signs: Signs, *, now: float) -> Condition:
    """How the experiment stands at `now` (seconds since 1970)."""
    if signs.holder:
        return Condition.LIVE
    if machine.finished:
        return _ended(machine)
    if signs.heard_at is not None and now - signs.heard_at <= longest_silence_s(machine):
        return Condition.LIVE
    return Condition.INTERRUPTED


def longest_silence_s(machine: Machine) -> float:
    """So many seconds may pass before a run that lives is heard of in its storage."""
    sync = machine.spec.options.get("sync", {})
    return 2 * float(sync.get("sync_period", _SYNC_PERIOD_S)) + _GRACE_S


def _ended(machine: Machine) -> Condition:
    reason = machine.ending.reason if machine.ending is not None else ""
    if reason in _BY_AN_ERROR:
        return Condition.ERRORED
    if reason in RESUMABLE and has_rest(machine):
        return Condition.INTERRUPTED
    return Condition.ERRORED if machine.errored else Condition.FINISHED


def counts(machine: Machine) -> dict[str, int]:
    """How many trials there are of each status, in the order of a trial's life."""
    found = [trial.status for trial in machine.trials.values()]
    return {status.value: found.count(status) for status in Status if status in found}


def best_of(machine: Machine, metric: str | None, mode: str | None) -> Trial | None:
    """The trial whose last value is the best; None where there is none, or no goal."""
    trials = machine.trials.values()
    best = max(trials, key=lambda trial: rank(trial, metric, mode), default=None)
    return None if best is None or value_of(best, metric) is None or mode is None else best
