"""`from holdfast.train.xgboost import XGBoostTrainer`: the names of `ray.train.xgboost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy
from holdfast.train.xgboost.config import XGBOOST

if TYPE_CHECKING:
    from holdfast.train.xgboost.callback import TrainReportCallback as TrainReportCallback
    from holdfast.train.xgboost.config import XGBoostConfig as XGBoostConfig
    from holdfast.train.xgboost.trainer import XGBoostTrainer as XGBoostTrainer

    RayTrainReportCallback = TrainReportCallback

_HOMES = {
    "RayTrainReportCallback": "holdfast.train.xgboost.callback:TrainReportCallback",
    "TrainReportCallback": "holdfast.train.xgboost.callback",
    "XGBoostConfig": "holdfast.train.xgboost.config",
    "XGBoostTrainer": "holdfast.train.xgboost.trainer",
}

__getattr__, __dir__ = lazy(__name__, _HOMES, needs=XGBOOST)
__all__ = list(_HOMES)
