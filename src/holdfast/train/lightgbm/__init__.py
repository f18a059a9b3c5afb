"""`from holdfast.train.lightgbm import LightGBMTrainer`: the names of `ray.train.lightgbm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import LIGHTGBM, lazy

if TYPE_CHECKING:
    from holdfast.train.lightgbm.callback import LightGBMCheckpoint as LightGBMCheckpoint
    from holdfast.train.lightgbm.callback import TrainReportCallback as TrainReportCallback
    from holdfast.train.lightgbm.trainer import LightGBMConfig as LightGBMConfig
    from holdfast.train.lightgbm.trainer import LightGBMTrainer as LightGBMTrainer
    from holdfast.train.lightgbm.trainer import get_network_params as get_network_params

    RayTrainReportCallback = TrainReportCallback

__getattr__, __dir__, __all__ = lazy(__name__, needs=LIGHTGBM)
