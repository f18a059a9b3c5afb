"""Merges the reports of one attempt's ranks into reports of the trial. Pure: no I/O.

A report of the trial needs one of every rank: its row is rank 0's, and its checkpoint has the
files of all ranks that passed some. Ranks that are out of step can never meet again: the barrier
reports this as soon as it is certain, and names the rank.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.dataclass import dataclass
from holdfast.trial.checkpoint import CheckpointUploadMode
from holdfast.trial.events import Reported

_STRICTEST_FIRST = (
    CheckpointUploadMode.SYNC,
    CheckpointUploadMode.ASYNC,
    CheckpointUploadMode.NO_UPLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """All ranks have reported; `reports` has one of each rank, in order."""

    reports: tuple[Reported, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        """The ranks with files of the checkpoint; empty if there is no checkpoint."""
        return tuple(rank for rank, one in enumerate(self.reports) if one.checkpoint is not None)

    @property
    def upload(self) -> CheckpointUploadMode:
        """The upload mode of the checkpoint: the strongest that a rank asked for."""
        asked = {one.checkpoint.upload for one in self.reports if one.checkpoint is not None}
        return next(mode for mode in _STRICTEST_FIRST if mode in asked)

    @property
    def other_keys(self) -> dict[int, tuple[str, ...]]:
        """By rank: the metrics that only it or only rank 0 has reported."""
        first = self.reports[0].metrics.keys()
        differing = [tuple(sorted(first ^ one.metrics.keys())) for one in self.reports]
        return {rank: keys for rank, keys in enumerate(differing) if keys}


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
        self._reports: dict[int, Reported] = {}

    @property
    def waiting(self) -> tuple[int, ...]:
        """The ranks that wait in a report."""
        return tuple(self._where(_At.BARRIER))

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that the others wait for."""
        if _At.BARRIER not in self._at:
            return ()
        return tuple(rank for rank, at in enumerate(self._at) if at is _At.WORK)

    def reported(self, rank: int, report: Reported) -> Outcome | None:
        """Record a rank's report; with a `checkpoint`, it has staged its part of one.

        Raises ValueError if it is impossible: a rank that waits or has returned cannot report, and
        each rank counts its reports.
        """
        if self._at[rank] is not _At.WORK or report.iteration != self.iteration + 1:
            raise ValueError(f"rank {rank} must report iteration {self.iteration + 1}")
        self._at[rank] = _At.BARRIER
        self._reports[rank] = report
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
