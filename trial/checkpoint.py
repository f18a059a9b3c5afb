"""What the records know of a checkpoint: where it is, how far it had come, how good it was."""

from __future__ import annotations

from enum import StrEnum

from holdfast.dataclass import dataclass
from holdfast.trial.bounds import Count, Ordinal
from holdfast.trial.evolving import evolver


class CheckpointUploadMode(StrEnum):
    """How a reported checkpoint reaches storage that is not on this machine.

    ASYNC: behind `report()`, which returns when the checkpoint is complete on this machine. SYNC:
    `report()` returns when storage has confirmed all of it (where the local directory is the
    storage: when it is forced to the disk). NO_UPLOAD: it stays on this machine, for a restore
    here; the newest one that is in storage is kept beside it.
    """

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"


_PREFIX = "checkpoint_"


def checkpoint_dirname(index: int) -> str:
    return f"{_PREFIX}{index:06d}"


def checkpoint_number(dirname: str) -> int | None:
    """The index of the checkpoint in a folder of this name, None if it is not one's.

    Users make folders like `checkpoint_best` and `checkpoint_500` of their own.
    """
    number = dirname.removeprefix(_PREFIX)
    is_number = number != dirname and number.isascii() and number.isdecimal()
    return int(number) if is_number and dirname == checkpoint_dirname(int(number)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """One reported checkpoint of one trial.

    `index` names its folder and grows by one with each checkpoint of the trial, over all attempts.
    `time_total_s` is the trial's training time up to it.
    `score` is the value of the configured attribute, None where it was missing or not finite.
    `committed` says that its manifest is written and, where storage is remote, confirmed.
    """

    index: Ordinal
    iteration: Count
    attempt: Count
    files: Count
    size_bytes: Count
    time_total_s: float = 0.0
    score: float | None = None
    committed: bool = False
    upload: CheckpointUploadMode = CheckpointUploadMode.ASYNC

    @property
    def stays_here(self) -> bool:
        """Whether it is kept from storage that is not on this machine."""
        return self.upload is CheckpointUploadMode.NO_UPLOAD

    @property
    def dirname(self) -> str:
        return checkpoint_dirname(self.index)


evolve_record = evolver(CheckpointRecord)
