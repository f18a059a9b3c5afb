"""`from holdfast.train.lightgbm import LightGBMTrainer`: the names of `ray.train.lightgbm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy
from holdfast.train.lightgbm.config import LIGHTGBM

if TYPE_CHECKING:
    from holdfast.train.lightgbm.callback import TrainReportCallback as TrainReportCallback
    from holdfast.train.lightgbm.config import LightGBMConfig as LightGBMConfig
    from holdfast.train.lightgbm.config import get_network_params as get_network_params
    from holdfast.train.lightgbm.trainer import LightGBMTrainer as LightGBMTrainer

    RayTrainReportCallback = TrainReportCallback

_HOMES = {
    "LightGBMConfig": "holdfast.train.lightgbm.config",
    "LightGBMTrainer": "holdfast.train.lightgbm.trainer",
    "RayTrainReportCallback": "holdfast.train.lightgbm.callback:TrainReportCallback",
    "TrainReportCallback": "holdfast.train.lightgbm.callback",
    "get_network_params": "holdfast.train.lightgbm.config",
}

__getattr__, __dir__ = lazy(__name__, _HOMES, needs=LIGHTGBM)
__all__ = list(_HOMES)
