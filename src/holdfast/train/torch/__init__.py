"""`from holdfast.train.torch import TorchTrainer`: the names of `ray.train.torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import TORCH, lazy

if TYPE_CHECKING:
    from holdfast.experiment.worker.context import get_device as get_device
    from holdfast.experiment.worker.context import get_devices as get_devices
    from holdfast.train.torch.loop import DealingSampler as DealingSampler
    from holdfast.train.torch.loop import TorchCheckpoint as TorchCheckpoint
    from holdfast.train.torch.loop import accelerate as accelerate
    from holdfast.train.torch.loop import backward as backward
    from holdfast.train.torch.loop import enable_reproducibility as enable_reproducibility
    from holdfast.train.torch.loop import prepare_data_loader as prepare_data_loader
    from holdfast.train.torch.loop import prepare_model as prepare_model
    from holdfast.train.torch.loop import prepare_optimizer as prepare_optimizer
    from holdfast.train.torch.trainer import TorchConfig as TorchConfig
    from holdfast.train.torch.trainer import TorchTrainer as TorchTrainer

__getattr__, __dir__, __all__ = lazy(__name__, needs=TORCH)
