"""`from holdfast import train`: the names of `ray.train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.context import TrainContext as TrainContext
    from holdfast.experiment.context import get_checkpoint as get_checkpoint
    from holdfast.experiment.context import get_context as get_context
    from holdfast.experiment.context import report as report
    from holdfast.experiment.context import staging_directory as staging_directory
    from holdfast.experiment.data_config import TRAIN_DATASET_KEY as TRAIN_DATASET_KEY
    from holdfast.experiment.data_config import DataConfig as DataConfig
    from holdfast.experiment.data_config import get_dataset_shard as get_dataset_shard
    from holdfast.experiment.result import Result as Result
    from holdfast.experiment.train_loop import BackendConfig as BackendConfig
    from holdfast.experiment.trainer import DataParallelTrainer as DataParallelTrainer
    from holdfast.experiment.trainer import TrainingFailedError as TrainingFailedError
    from holdfast.syncer.checkpoint import Checkpoint as Checkpoint
    from holdfast.trial.checkpoint import CheckpointUploadMode as CheckpointUploadMode
    from holdfast.trial.config import CheckpointConfig as CheckpointConfig
    from holdfast.trial.config import FailureConfig as FailureConfig
    from holdfast.trial.config import RunConfig as RunConfig
    from holdfast.trial.config import SyncConfig as SyncConfig
    from holdfast.trial.scaling import ScalingConfig as ScalingConfig

_HOMES = {
    "BackendConfig": "holdfast.experiment.train_loop",
    "Checkpoint": "holdfast.syncer.checkpoint",
    "CheckpointConfig": "holdfast.trial.config",
    "CheckpointUploadMode": "holdfast.trial.checkpoint",
    "DataConfig": "holdfast.experiment.data_config",
    "DataParallelTrainer": "holdfast.experiment.trainer",
    "FailureConfig": "holdfast.trial.config",
    "Result": "holdfast.experiment.result",
    "RunConfig": "holdfast.trial.config",
    "ScalingConfig": "holdfast.trial.scaling",
    "SyncConfig": "holdfast.trial.config",
    "TRAIN_DATASET_KEY": "holdfast.experiment.data_config",
    "TrainContext": "holdfast.experiment.context",
    "TrainingFailedError": "holdfast.experiment.trainer",
    "get_checkpoint": "holdfast.experiment.context",
    "get_context": "holdfast.experiment.context",
    "get_dataset_shard": "holdfast.experiment.data_config",
    "report": "holdfast.experiment.context",
    "staging_directory": "holdfast.experiment.context",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
