"""The record of a checkpoint: its folder, its iteration and its score."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.schema import Count, NodeName, Ordinal, evolver


class CheckpointUploadMode(StrEnum):
    """How a reported checkpoint reaches storage that is not on this machine.

    ASYNC: `report()` returns when the checkpoint is complete on this machine; the upload runs in
    the background. SYNC: `report()` returns when storage has confirmed the whole checkpoint (with
    storage on this machine: when it is flushed to the disk). NO_UPLOAD: the checkpoint stays on
    this machine, for a restore here; the newest checkpoint in storage is kept as well.
    """

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"


class Validation(StrEnum):
    """What is known of a checkpoint's validation; NONE: nobody asked for one."""

    NONE = "NONE"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


_PREFIX = "checkpoint_"
_BLOCK = 100_000


def checkpoint_dirname(index: int) -> str:
    return f"{_PREFIX}{index:06d}"


def number_past(index: int) -> int:
    """The next number for holdfast's checkpoints where a script has a folder of number `index` of
    its own: so far above that its later ones stay free."""
    return first_number(index) + _BLOCK


def first_number(index: int) -> int:
    """The first number that may be of the same series as `index`."""
    return index - index % _BLOCK


def checkpoint_number(dirname: str) -> int | None:
    """The index of the checkpoint in a folder of this name; None if it is not a checkpoint's.

    Users create folders such as `checkpoint_best` and `checkpoint_500` themselves.
    """
    number = dirname.removeprefix(_PREFIX)
    is_number = number != dirname and number.isascii() and number.isdecimal()
    return int(number) if is_number and dirname == checkpoint_dirname(int(number)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """One reported checkpoint of one trial.

    `index` names its folder and grows by one with each checkpoint of the trial, over all attempts.
    `time_total_s` is the trial's training time up to this checkpoint. `score` is the value of the
    configured attribute; None if it was missing or not finite. `committed` is true once its
    manifest is written and, if storage is remote, confirmed. `node` is where it was written; "" on
    the controller's machine. `metrics` are those of its report, with those of its validation, in
    a trial of a trainer; None in others.
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
    node: NodeName = ""
    metrics: Mapping[str, Any] | None = None
    validation: Validation = Validation.NONE

    @property
    def stays_here(self) -> bool:
        """Whether it is never uploaded to storage that is not on this machine."""
        return self.upload is CheckpointUploadMode.NO_UPLOAD

    @property
    def persisted(self) -> bool:
        """Whether storage has it."""
        return self.committed and not self.stays_here

    @property
    def dirname(self) -> str:
        return checkpoint_dirname(self.index)


evolve_record = evolver(CheckpointRecord)
