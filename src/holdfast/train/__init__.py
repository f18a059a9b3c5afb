"""`from holdfast import train`: the names of `ray.train` that a single worker needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.context import (
        get_context as get_context,
    )
    from holdfast.experiment.result import Result as Result
    from holdfast.experiment.session import (
        get_checkpoint as get_checkpoint,
    )
    from holdfast.experiment.session import (
        report as report,
    )
    from holdfast.experiment.session import (
        staging_directory as staging_directory,
    )
    from holdfast.syncer.checkpoint import Checkpoint as Checkpoint
    from holdfast.trial.checkpoint import CheckpointUploadMode as CheckpointUploadMode
    from holdfast.trial.config import (
        CheckpointConfig as CheckpointConfig,
    )
    from holdfast.trial.config import (
        FailureConfig as FailureConfig,
    )
    from holdfast.trial.config import (
        RunConfig as RunConfig,
    )
    from holdfast.trial.config import (
        SyncConfig as SyncConfig,
    )

_HOMES = {
    "Result": "holdfast.experiment.result",
    "get_checkpoint": "holdfast.experiment.session",
    "get_context": "holdfast.experiment.context",
    "report": "holdfast.experiment.session",
    "staging_directory": "holdfast.experiment.session",
    "Checkpoint": "holdfast.syncer.checkpoint",
    "CheckpointUploadMode": "holdfast.trial.checkpoint",
    "CheckpointConfig": "holdfast.trial.config",
    "FailureConfig": "holdfast.trial.config",
    "RunConfig": "holdfast.trial.config",
    "SyncConfig": "holdfast.trial.config",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
