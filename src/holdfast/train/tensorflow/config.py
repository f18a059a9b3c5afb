"""How TensorFlow learns about the ranks of a trial."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.assignable import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.train_loop import BackendConfig, Rank
from holdfast.lazy import TENSORFLOW
from holdfast.train.ports import place_of_each


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
