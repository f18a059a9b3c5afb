"""`from holdfast import train`: the names of `ray.train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.api.trainer import ControllerError as ControllerError
    from holdfast.api.trainer import DataParallelTrainer as DataParallelTrainer
    from holdfast.api.trainer import NCCLHangError as NCCLHangError
    from holdfast.api.trainer import PreemptionError as PreemptionError
    from holdfast.api.trainer import TrainingFailedError as TrainingFailedError
    from holdfast.api.trainer import WorkerGroupError as WorkerGroupError
    from holdfast.api.trainer import load as load
    from holdfast.experiment.callbacks.callback import UserCallback as UserCallback
    from holdfast.experiment.worker.context import TrainContext as TrainContext
    from holdfast.experiment.worker.context import get_checkpoint as get_checkpoint
    from holdfast.experiment.worker.context import get_context as get_context
    from holdfast.experiment.worker.context import report as report
    from holdfast.experiment.worker.context import staging_directory as staging_directory
    from holdfast.experiment.worker.rank_session import (
        CheckpointConsistencyMode as CheckpointConsistencyMode,
    )
    from holdfast.experiment.worker.rank_session import PreemptionInfo as PreemptionInfo
    from holdfast.experiment.worker.rank_session import (
        ReportedCheckpoint as ReportedCheckpoint,
    )
    from holdfast.experiment.worker.rank_session import (
        ReportedCheckpointStatus as ReportedCheckpointStatus,
    )
    from holdfast.experiment.worker.rank_session import (
        get_all_reported_checkpoints as get_all_reported_checkpoints,
    )
    from holdfast.experiment.worker.rank_session import (
        get_preemption_info as get_preemption_info,
    )
    from holdfast.experiment.worker.train_loop import TRAIN_DATASET_KEY as TRAIN_DATASET_KEY
    from holdfast.experiment.worker.train_loop import BackendConfig as BackendConfig
    from holdfast.experiment.worker.train_loop import DataConfig as DataConfig
    from holdfast.experiment.worker.train_loop import ValidationConfig as ValidationConfig
    from holdfast.experiment.worker.train_loop import ValidationFn as ValidationFn
    from holdfast.experiment.worker.train_loop import (
        ValidationTaskConfig as ValidationTaskConfig,
    )
    from holdfast.experiment.worker.train_loop import get_dataset_shard as get_dataset_shard
    from holdfast.results.result import Result as Result
    from holdfast.syncer.checkpoint.checkpoint import Checkpoint as Checkpoint
    from holdfast.train import collective as collective
    from holdfast.trial.config import CheckpointConfig as CheckpointConfig
    from holdfast.trial.config import FailureConfig as FailureConfig
    from holdfast.trial.config import LoggingConfig as LoggingConfig
    from holdfast.trial.config import RunConfig as RunConfig
    from holdfast.trial.config import SyncConfig as SyncConfig
    from holdfast.trial.scaling import ScalingConfig as ScalingConfig
    from holdfast.trial.trial import CheckpointUploadMode as CheckpointUploadMode

__getattr__, __dir__, __all__ = lazy(__name__)
