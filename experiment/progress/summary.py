"""A run at one moment, as plain data, and the base of the views that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.trial.resources import Usage
from holdfast.trial.trial import Status, StopReason

if TYPE_CHECKING:
    from holdfast.experiment.callbacks.thread import Level

MAX_FAILURES = 20
# Data that waits longer than this for storage is shown as late.
LATE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run at one moment.

    `rows` are the trials to show, `hidden` counts the others by status. `metrics` and `params` are
    the table's columns. `failures` are at most MAX_FAILURES trials that failed or wait for a
    retry. Times are in seconds; `left_s` is an estimate, None if there is none; `share` is the
    fraction of the work that is done, from 0 to 1, None if the number of trials is not known.
    `early` counts the trials that were stopped before they had finished by reason, `interrupted`
    those that had begun and did not end, once the run has ended. `scheduler` is a line about what
    the scheduler has decided, `outlook` one about what the search expects. `retried` counts
    retries in this process, `silent` trials that finished without a report, `unread` lines of
    commands that looked like reports and could not be read.

    `ending` says why the run is being stopped, `phase` what it waits for before the first trial
    and after the last one, `waiting` what its cluster waits for, or that it waits for a person;
    otherwise they are empty. `nodes` is None if all trials run on this machine.
    """

    name: str
    path: str
    counts: Mapping[Status, int]
    total: int | None
    rows: tuple[TrialRow, ...] = ()
    hidden: Mapping[Status, int] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    best: BestTrial | None = None
    failures: tuple[FailedTrial, ...] = ()
    elapsed_s: float = 0.0
    left_s: float | None = None
    share: float | None = None
    early: Mapping[StopReason, int] = field(default_factory=dict)
    interrupted: int = 0
    scheduler: str = ""
    outlook: str = ""
    retried: int = 0
    silent: int = 0
    unread: int = 0
    waits: tuple[RankWait, ...] = ()
    storage: StorageAge | None = None
    ending: str = ""
    phase: str = ""
    nodes: NodesSummary | None = None
    waiting: str = ""
    done: bool = False
    is_resumed: bool = False

    @property
    def not_created(self) -> int:
        """The number of trials that the search has yet to create, as far as known."""
        return max(0, (self.total or 0) - sum(self.counts.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial of the table. `metrics` has its values of `Summary.metrics`.

    `last` is the iteration with which it is expected to end, None if not known. It has `workers`
    of `most_workers` if their number can change; otherwise both are 0. `nodes` are those that it
    runs or ran on, rank 0's first; none on this machine. `early` is the reason of one that was
    stopped before it had finished. `usage` is what its attempts have used. `confirms` is the trial
    whose config it runs again.
    """

    trial_id: str
    name: str
    status: Status
    params: Mapping[str, Any]
    iteration: int
    time_total_s: float
    metrics: Mapping[str, float]
    retries: int = 0
    last: int | None = None
    workers: int = 0
    most_workers: int = 0
    nodes: tuple[str, ...] = ()
    early: StopReason | None = None
    has_begun: bool = True
    usage: Usage | None = None
    unread: int = 0
    confirms: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSummary:
    """The nodes of a cluster: how many are `here`, and the most that there can be, None if there
    is no limit.

    Those that are `leaving` start no trial, and do not count. `left` are those that have left in
    the last minute, the newest first, each with the cause.
    """

    here: int
    most: int | None = None
    leaving: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """The trial with the best last value so far. `iteration` is that of its last report.

    `early` is the reason if it was stopped there before it had finished. `confirmation` says what
    fresh runs of its config have shown; then `value` is their mean.
    """

    trial_id: str
    name: str
    metric: str
    value: float
    params: Mapping[str, Any]
    iteration: int = 0
    early: StopReason | None = None
    confirmation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A trial that failed for good or, if `final` is False, waits to be retried.

    `where` is the frame of the user's code, as in `train.py:42 in train`, empty if not known.
    `error_file` is the file with the most information, `other_file` where to look if it is empty.
    `of_cause` is the number of trials that failed for good with this cause, 0 for one that waits.
    `is_earlier`: it failed before this restore. `node`: see `Failure.on_node`.
    """

    trial_id: str
    attempt: int
    name: str
    headline: str
    where: str
    error_file: str
    retries: int
    final: bool
    of_cause: int = 0
    other_file: str = ""
    is_earlier: bool = False
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """Ranks of a trial have waited `waited_s` seconds in their report for these `ranks`."""

    name: str
    ranks: tuple[int, ...]
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAge:
    """Data not in remote storage yet: the age of its oldest part, its size, and any trouble.

    `checkpoints` wait, with `files` files of `pending_bytes` in all; records are uploaded every
    `period_s`. `trouble` is empty while storage answers.
    """

    oldest_s: float = 0.0
    checkpoints: int = 0
    files: int = 0
    pending_bytes: int = 0
    period_s: float = 300.0
    upload: UploadProgress | None = None
    trouble: str = ""

    @property
    def is_late(self) -> bool:
        """True if storage is slow or does not answer: something has waited too long."""
        return (
            bool(self.trouble)
            or self.oldest_s > self.period_s + LATE_S
            or (self.checkpoints > 0 and self.oldest_s > LATE_S)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadProgress:
    """An upload in progress."""

    name: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts about a run that are in no event: its name, and where its results are.

    `path` is the experiment's folder in storage, `local_path` the one on this machine. `total` is
    the number of trials that the search will suggest, None if not known. `resumes`: starting the
    script again resumes the run. `failed_before` are the trials, each with its last attempt, that
    had failed before this restore; None if the run is new. `command` resumes it in a shell, "" if
    none can; `trainable` names the script's function for it, "" if nothing does, and with
    `is_stored` it would run the function as it was stored. `again`: the
    command that made this call, "" for a script. `is_over`: the run was finished before, and runs
    no trial. `began_at` is when the user called `fit()`, and `before_s` how long the run had
    worked before.
    """

    name: str
    path: str
    local_path: str
    total: int | None = None
    resumes: bool = False
    failed_before: frozenset[tuple[str, int]] | None = None
    command: str = ""
    trainable: str = ""
    is_stored: bool = False
    again: str = ""
    is_over: bool = False
    began_at: float | None = None
    before_s: float = 0.0

    def elapsed_s(self, now: float, active_s: float) -> float:
        """Seconds that the user has waited for the run.

        `active_s`, the time in its records, leaves out its start and its end.
        """
        if self.is_over or self.began_at is None:
            return active_s
        return self.before_s + max(0.0, now - self.began_at)


class ProgressView:
    """Shows a run to a person. All methods are called from one thread.

    A view inherits those that have nothing to do in it.
    """

    def start(self) -> None:
        """Called when the run begins."""

    def update(self, summary: Summary) -> None:
        """Called with the state of the run: up to four times a second, every ten seconds
        if nothing happens."""

    def log(self, prefix: str, text: str) -> None:
        """Called when a worker has printed `text`, one or more lines; `prefix` is its trial and
        process."""

    def skipped(self, prefix: str, count: int) -> None:
        """Called when `count` lines of a worker were dropped before the next call of `log`."""

    def message(self, text: str, level: Level) -> None:
        """Called with a message for the user; `level` is "info", "warning", "loss" or "error".

        A loss is a warning that outputs are lost or incomplete; it is shown at `verbose=0` as
        well.
        """

    def finish(self, summary: Summary) -> None:
        """Called when the run has ended, to show the result."""

    def abandon(self) -> None:
        """Restore the terminal at once, without printing anything."""
