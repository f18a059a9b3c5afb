"""What TensorFlow is told of the ranks of one trial."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.train_loop import BackendConfig, Rank
from holdfast.lazy import TENSORFLOW
from holdfast.train.ports import set_aside


@dataclass(frozen=True)
class TensorflowConfig(BackendConfig):
    """The ranks as the workers of one cluster, in `TF_CONFIG`, for MultiWorkerMirroredStrategy.

    Raises ImportError where TensorFlow is not installed, or too old.
    """

    # Importing it takes seconds, and starts no threads: those come with its first operation.
    modules = ("tensorflow", "holdfast.train.tensorflow.callback")

    def __post_init__(self) -> None:
        TENSORFLOW.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises TuneError where there are no ports."""
        kept: list[tuple[int, socket.socket]] = []
        if rank.rank == 0:
            kept = set_aside(rank.world_size)
        ports = json.loads(rank.meet(json.dumps([port for port, _ in kept])))
        workers = [f"127.0.0.1:{port}" for port in ports]
        task = {"type": "worker", "index": rank.rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        yield
        for _, name in kept:
            name.close()


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """The tf.data.Dataset of a rank's own samples, which no strategy is to split once more."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options)
