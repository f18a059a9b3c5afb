"""`get_all_reported_checkpoints()`: the checkpoints of a training, with their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.rank_session import current_rank
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.trial import Validation


class CheckpointConsistencyMode(StrEnum):
    """For Ray's scripts. Both mean the same here: when `report()` has returned, its checkpoint is
    complete, in the journal, and validated if that was asked for."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(StrEnum):
    """COMMITTED: no validation was asked for. VALIDATED: the metrics have those of the validation.
    VALIDATION_FAILED: the function raised. VALIDATION_TIMEOUT: it took too long.
    PENDING_VALIDATION does not occur: a validation is a part of its report."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


@dataclass(frozen=True, slots=True)
class ReportedCheckpoint:
    """A checkpoint, the metrics of rank 0's report with those of its validation, and its
    status."""

    checkpoint: Checkpoint
    metrics: Mapping[str, Any]
    status: ReportedCheckpointStatus


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """The checkpoints of this training that are kept, of all attempts and restores, oldest first.

    Those that `CheckpointConfig(num_to_keep=...)` has superseded are missing. There is nothing to
    wait for, so both arguments have no effect.

    Raises NotInTrial outside the loop of a trainer.
    """
    CheckpointConsistencyMode(consistency_mode)
    session = current_rank(
        "train.get_all_reported_checkpoints()",
        instead=". In other trials, keep what you need in a checkpoint",
    )
    return [
        ReportedCheckpoint(
            session.checkpoint_named(dirname),
            metrics,
            _status(Validation(validation)),
        )
        for dirname, metrics, validation in session.ask_reported()
    ]


def _status(validation: Validation) -> ReportedCheckpointStatus:
    if validation is Validation.NONE:
        return ReportedCheckpointStatus.COMMITTED
    return ReportedCheckpointStatus(validation.value)
