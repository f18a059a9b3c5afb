"""`from holdfast.train.torch import TorchTrainer`: the names of `ray.train.torch`."""

from __future__ import annotations

from holdfast.train.torch.config import TorchConfig as TorchConfig
from holdfast.train.torch.trainer import TorchTrainer as TorchTrainer
