"""What the ranks of one attempt say, made into what their trial says.   PURE

A report of the trial is one of every rank: its row is rank 0's, its checkpoint has the files of
all that gave some. Ranks that are no longer in step can never meet again; that is found out as
soon as it is certain, and told with the rank that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.checkpoint import CheckpointUploadMode

_STRICTEST_FIRST = (
    CheckpointUploadMode.SYNC,
    CheckpointUploadMode.ASYNC,
    CheckpointUploadMode.NO_UPLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank's `report()`. `has_files`: it has staged its part of a checkpoint; `upload` is the
    mode that it asked for. Seconds as in `Reported`."""

    rank: int
    iteration: int
    metrics: Mapping[str, Any]
    timestamp: float
    time_this_iter_s: float
    time_total_s: float
    has_files: bool = False
    upload: CheckpointUploadMode = CheckpointUploadMode.ASYNC


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """All ranks have reported; `reports` are in the order of ranks."""

    reports: tuple[RankReport, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        """The ranks that gave files of the checkpoint; none where there is no checkpoint."""
        return tuple(report.rank for report in self.reports if report.has_files)

    @property
    def upload(self) -> CheckpointUploadMode:
        """The mode of the checkpoint: the one that promises most of those that were asked for."""
        asked = {report.upload for report in self.reports if report.has_files}
        return next(mode for mode in _STRICTEST_FIRST if mode in asked)

    @property
    def other_keys(self) -> dict[int, tuple[str, ...]]:
        """By rank, the metrics that only it, or only rank 0, has reported."""
        first = self.reports[0].metrics.keys()
        differing = {r.rank: tuple(sorted(first ^ r.metrics.keys())) for r in self.reports}
        return {rank: keys for rank, keys in differing.items() if keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReturned:
    """The trial's function has returned, in every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfStep:
    """The ranks can never meet again: `rank` is to blame."""

    rank: int
    text: str


Outcome = Met | AllReturned | OutOfStep


class _At(StrEnum):
    WORK = "work"
    BARRIER = "barrier"
    END = "end"


class Barrier:
    """Where `ranks` processes wait for each other; `iteration` is the last that was answered."""

    def __init__(self, ranks: int, iteration: int) -> None:
        self.iteration = iteration
        self._at = [_At.WORK] * ranks
        self._reports: dict[int, RankReport] = {}

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that others wait for."""
        if _At.BARRIER not in self._at:
            return ()
        return tuple(rank for rank, at in enumerate(self._at) if at is _At.WORK)

    def reported(self, report: RankReport) -> Outcome | None:
        """Take in a rank's report. Raises ValueError for one that cannot be, as it is: a rank that
        waits, or has returned, reports nothing, and each counts its own reports."""
        if self._at[report.rank] is not _At.WORK or report.iteration != self.iteration + 1:
            raise ValueError(f"rank {report.rank} was to report {self.iteration + 1}")
        self._at[report.rank] = _At.BARRIER
        self._reports[report.rank] = report
        return self._outcome()

    def returned(self, rank: int) -> Outcome | None:
        """Take in that a rank's function has returned. Raises ValueError if it cannot have."""
        if self._at[rank] is not _At.WORK:
            raise ValueError(f"rank {rank} had nothing to return from")
        self._at[rank] = _At.END
        return self._outcome()

    def answered(self) -> None:
        """All that have met go on."""
        self.iteration += 1
        self._at = [_At.WORK] * len(self._at)
        self._reports.clear()

    def _outcome(self) -> Outcome | None:
        waiting, ended = self._where(_At.BARRIER), self._where(_At.END)
        if waiting and ended:
            return OutOfStep(rank=ended[0], text=self._apart(waiting))
        if len(waiting) == len(self._at):
            return Met(reports=tuple(self._reports[rank] for rank in waiting))
        return AllReturned() if len(ended) == len(self._at) else None

    def _where(self, place: _At) -> list[int]:
        return [rank for rank, at in enumerate(self._at) if at is place]

    def _apart(self, waiting: list[int]) -> str:
        return (
            f"its function returned after report {self.iteration}, while {_named(waiting)} made "
            f"report {self.iteration + 1}: every rank must call report() equally often, and one "
            f"that has raised does not count"
        )


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
