"""Merges the reports of one attempt's ranks into reports of the trial. Pure: no I/O.

A report of the trial needs one of every rank: its row is rank 0's, and its checkpoint has the
files of all ranks that passed some. Ranks that are out of step can never meet again: the barrier
reports this as soon as it is certain, and names the rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.checkpoint import CheckpointUploadMode
from holdfast.trial.events import Reported

_STRICTEST_FIRST = (
    CheckpointUploadMode.SYNC,
    CheckpointUploadMode.ASYNC,
    CheckpointUploadMode.NO_UPLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank's `report()`.

    `has_files`: it has staged its part of a checkpoint; `upload` is the mode that it asked for.
    Times are as in `Reported`.
    """

    rank: int
    iteration: int
    metrics: Mapping[str, Any]
    timestamp: float
    time_this_iter_s: float
    time_total_s: float
    has_files: bool = False
    upload: CheckpointUploadMode = CheckpointUploadMode.ASYNC

    @classmethod
    def of(cls, rank: int, event: Reported) -> RankReport:
        """The report of a rank whose worker posted `event`."""
        checkpoint = event.checkpoint
        return cls(
            rank=rank,
            iteration=event.iteration,
            metrics=event.metrics,
            timestamp=event.timestamp,
            time_this_iter_s=event.time_this_iter_s,
            time_total_s=event.time_total_s,
            has_files=checkpoint is not None,
            upload=checkpoint.upload if checkpoint else CheckpointUploadMode.ASYNC,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """All ranks have reported; `reports` are in the order of ranks."""

    reports: tuple[RankReport, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        """The ranks with files of the checkpoint; empty if there is no checkpoint."""
        return tuple(report.rank for report in self.reports if report.has_files)

    @property
    def upload(self) -> CheckpointUploadMode:
        """The upload mode of the checkpoint: the strongest that a rank asked for."""
        asked = {report.upload for report in self.reports if report.has_files}
        return next(mode for mode in _STRICTEST_FIRST if mode in asked)

    @property
    def other_keys(self) -> dict[int, tuple[str, ...]]:
        """By rank: the metrics that only it or only rank 0 has reported."""
        first = self.reports[0].metrics.keys()
        differing = {r.rank: tuple(sorted(first ^ r.metrics.keys())) for r in self.reports}
        return {rank: keys for rank, keys in differing.items() if keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReturned:
    """The trial's function has returned in every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfStep:
    """The ranks can never meet again because of `rank`."""

    rank: int
    text: str


Outcome = Met | AllReturned | OutOfStep


class _At(StrEnum):
    WORK = "work"
    BARRIER = "barrier"
    END = "end"


class Barrier:
    """The barrier at which `ranks` processes wait; `iteration` is the last that was answered."""

    def __init__(self, ranks: int, iteration: int) -> None:
        self.iteration = iteration
        self._at = [_At.WORK] * ranks
        self._reports: dict[int, RankReport] = {}

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that the others wait for."""
        if _At.BARRIER not in self._at:
            return ()
        return tuple(rank for rank, at in enumerate(self._at) if at is _At.WORK)

    def reported(self, report: RankReport) -> Outcome | None:
        """Record a rank's report.

        Raises ValueError if it is impossible: a rank that waits or has returned cannot report, and
        each rank counts its reports.
        """
        if self._at[report.rank] is not _At.WORK or report.iteration != self.iteration + 1:
            raise ValueError(f"rank {report.rank} must report iteration {self.iteration + 1}")
        self._at[report.rank] = _At.BARRIER
        self._reports[report.rank] = report
        return self._outcome()

    def returned(self, rank: int) -> Outcome | None:
        """Record that a rank's function has returned. Raises ValueError if that is impossible."""
        if self._at[rank] is not _At.WORK:
            raise ValueError(f"rank {rank} was not running")
        self._at[rank] = _At.END
        return self._outcome()

    def answered(self) -> None:
        """Let all ranks continue after a report."""
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
            f"its function returned after report {self.iteration}, but {_named(waiting)} called "
            f"report() again: every rank must call report() equally often; a call that raised "
            f"does not count"
        )


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
