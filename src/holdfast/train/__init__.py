"""`from holdfast import train`: the names of `ray.train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.api.trainer import DataParallelTrainer as DataParallelTrainer
    from holdfast.experiment.api.trainer import TrainingFailedError as TrainingFailedError
    from holdfast.experiment.results.result import Result as Result
    from holdfast.experiment.worker.context import TrainContext as TrainContext
    from holdfast.experiment.worker.context import get_checkpoint as get_checkpoint
    from holdfast.experiment.worker.context import get_context as get_context
    from holdfast.experiment.worker.context import report as report
    from holdfast.experiment.worker.context import staging_directory as staging_directory
    from holdfast.experiment.worker.data_config import TRAIN_DATASET_KEY as TRAIN_DATASET_KEY
    from holdfast.experiment.worker.data_config import DataConfig as DataConfig
    from holdfast.experiment.worker.data_config import get_dataset_shard as get_dataset_shard
    from holdfast.experiment.worker.train_loop import BackendConfig as BackendConfig
    from holdfast.syncer.checkpoint.checkpoint import Checkpoint as Checkpoint
    from holdfast.trial.checkpoint import CheckpointUploadMode as CheckpointUploadMode
    from holdfast.trial.config import CheckpointConfig as CheckpointConfig
    from holdfast.trial.config import FailureConfig as FailureConfig
    from holdfast.trial.config import RunConfig as RunConfig
    from holdfast.trial.config import SyncConfig as SyncConfig
    from holdfast.trial.scaling import ScalingConfig as ScalingConfig

_HOMES = {
    "BackendConfig": "holdfast.experiment.worker.train_loop",
    "Checkpoint": "holdfast.syncer.checkpoint.checkpoint",
    "CheckpointConfig": "holdfast.trial.config",
    "CheckpointUploadMode": "holdfast.trial.checkpoint",
    "DataConfig": "holdfast.experiment.worker.data_config",
    "DataParallelTrainer": "holdfast.experiment.api.trainer",
    "FailureConfig": "holdfast.trial.config",
    "Result": "holdfast.experiment.results.result",
    "RunConfig": "holdfast.trial.config",
    "ScalingConfig": "holdfast.trial.scaling",
    "SyncConfig": "holdfast.trial.config",
    "TRAIN_DATASET_KEY": "holdfast.experiment.worker.data_config",
    "TrainContext": "holdfast.experiment.worker.context",
    "TrainingFailedError": "holdfast.experiment.api.trainer",
    "get_checkpoint": "holdfast.experiment.worker.context",
    "get_context": "holdfast.experiment.worker.context",
    "get_dataset_shard": "holdfast.experiment.worker.data_config",
    "report": "holdfast.experiment.worker.context",
    "staging_directory": "holdfast.experiment.worker.context",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
