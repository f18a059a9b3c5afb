"""What there is to show of a run at one moment, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.trial import Status

MAX_FAILURES = 20
# What waits longer than this for storage is shown as late.
LATE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run at one moment.

    `rows` are the trials worth a line, `hidden` counts the others by status. `metrics` and
    `params` are the table's columns. `failures` are at most MAX_FAILURES of `failed` and those
    to be retried. Times are seconds; `left_s` is an estimate, None where there is no ground
    for one, and `share` which part of the work is done, from 0 to 1, None where the number of
    trials is not known. `retried` counts attempts that are made again, in this incarnation;
    `silent` trials that have finished and never reported.
    `ending` says why the run is being stopped, `phase` what is waited for before the first trial
    and after the last one; both are empty otherwise.
    """

    name: str
    path: str
    counts: Mapping[Status, int]
    total: int | None
    rows: tuple[TrialRow, ...] = ()
    hidden: Mapping[Status, int] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    metric: str | None = None
    mode: str | None = None
    best: BestTrial | None = None
    failures: tuple[FailedTrial, ...] = ()
    elapsed_s: float = 0.0
    left_s: float | None = None
    share: float | None = None
    retried: int = 0
    silent: int = 0
    waits: tuple[RankWait, ...] = ()
    storage: StorageAge | None = None
    ending: str = ""
    phase: str = ""
    done: bool = False

    @property
    def not_created(self) -> int:
        """How many trials the search has yet to create, as far as that is known."""
        return max(0, (self.total or 0) - sum(self.counts.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial of the table. `metrics` has a value for each of `Summary.metrics` it reported.

    `last` is the iteration with which it is expected to end, None where nobody says. `workers` is
    how many it has of `most_workers` where their number may change, both 0 where it may not.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """The trial whose last report, that of `iteration`, has the best value so far."""

    trial_id: str
    name: str
    metric: str
    value: float
    params: Mapping[str, Any]
    iteration: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A trial that failed: for good, or (`final` is False) it waits to be tried again.

    `where` is the frame of the user's code, as `train.py:42 in train`, empty where unknown;
    `error_file` the file that tells most of it, `other_file` where to look if that is empty. So
    many trials have failed for good with this
    cause as `of_cause` says, 0 for one that waits.
    """

    trial_id: str
    name: str
    headline: str
    where: str
    error_file: str
    retries: int
    final: bool
    of_cause: int = 0
    other_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """A trial whose ranks have waited so many seconds with their report for these `ranks`."""

    name: str
    ranks: tuple[int, ...]
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAge:
    """What is not in remote storage yet: the age of its oldest part, how much, and what is wrong.

    `checkpoints` wait, with so many `files` of `pending_bytes` in all; records are sent each
    `period_s`. `trouble` is empty while storage answers.
    """

    oldest_s: float = 0.0
    checkpoints: int = 0
    files: int = 0
    pending_bytes: int = 0
    period_s: float = 300.0
    uploads: tuple[UploadProgress, ...] = ()
    trouble: str = ""

    @property
    def is_late(self) -> bool:
        """Whether storage is slow or does not answer: something waits for more than it should."""
        return (
            bool(self.trouble)
            or self.oldest_s > self.period_s + LATE_S
            or (self.checkpoints > 0 and self.oldest_s > LATE_S)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadProgress:
    """Something on its way to storage; `total_bytes` is None where it is not known yet."""

    name: str
    done_bytes: int
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is shown of a run and stands in no event: its name, and where its results lie.

    `path` is the experiment's folder in storage, `local_path` the one on this machine. `total` is
    the number of trials that the search will give, None where it is not known. `resumes`: the
    script goes on with the run when it is started again.
    """

    name: str
    path: str
    local_path: str
    total: int | None = None
    resumes: bool = False
