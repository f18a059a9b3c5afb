"""`from holdfast.train.tensorflow import TensorflowTrainer`: `ray.train.tensorflow`'s names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import TENSORFLOW, lazy

if TYPE_CHECKING:
    from holdfast.train.tensorflow.callback import TensorflowCheckpoint as TensorflowCheckpoint
    from holdfast.train.tensorflow.trainer import TensorflowConfig as TensorflowConfig
    from holdfast.train.tensorflow.trainer import TensorflowTrainer as TensorflowTrainer
    from holdfast.train.tensorflow.trainer import prepare_dataset_shard as prepare_dataset_shard

__getattr__, __dir__, __all__ = lazy(__name__, needs=TENSORFLOW)
