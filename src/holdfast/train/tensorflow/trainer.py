"""`TensorflowTrainer`, and the cluster of the ranks of one trial."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from holdfast.api.trainer import DataParallelTrainer
from holdfast.compat.advice import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.train_loop import BackendConfig, DataConfig, Rank
from holdfast.lazy import TENSORFLOW
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.ports import place_of_each
from holdfast.trial.config import RunConfig
from holdfast.trial.scaling import ScalingConfig


@dataclass(unsafe_hash=True)
class TensorflowConfig(Assignable, BackendConfig):
    """The ranks as the workers of one cluster, in `TF_CONFIG`, for MultiWorkerMirroredStrategy.

    Raises ImportError if TensorFlow is not installed, or too old.
    """

    # Importing TensorFlow takes seconds but starts no threads; its first operation does.
    modules = ("tensorflow", "holdfast.train.tensorflow.callback")

    def __post_init__(self) -> None:
        TENSORFLOW.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises TuneError if no port is free."""
        with place_of_each(rank) as workers:
            task = {"type": "worker", "index": rank.rank}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
            yield


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """A tf.data.Dataset of the rank's own samples, which no strategy may split again."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options)


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
