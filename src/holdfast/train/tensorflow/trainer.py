"""`TensorflowTrainer`, as users write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.experiment.api.trainer import DataParallelTrainer
from holdfast.experiment.worker.train_loop import BackendConfig, DataConfig
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.tensorflow.config import TensorflowConfig
from holdfast.trial.config import RunConfig
from holdfast.trial.scaling import ScalingConfig


class TensorflowTrainer(DataParallelTrainer):
    """A DataParallelTrainer whose ranks are the workers of one TensorFlow cluster
    (`tensorflow_config`), which they find in `TF_CONFIG`.

    For the other parameters see DataParallelTrainer.

    Raises InvalidConfig, and ImportError if TensorFlow is not installed, or too old.
    """

    _backend_type: ClassVar[type[BackendConfig]] = TensorflowConfig

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        keep_all_metrics: bool = False,
        refuse_clashes: bool = False,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=tensorflow_config,
            scaling_config=scaling_config,
            dataset_config=dataset_config,
            run_config=run_config,
            datasets=datasets,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            keep_all_metrics=keep_all_metrics,
            refuse_clashes=refuse_clashes,
        )
