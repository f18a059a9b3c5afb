"""`from holdfast.train.xgboost import XGBoostTrainer`: the names of `ray.train.xgboost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import XGBOOST, lazy

if TYPE_CHECKING:
    from holdfast.train.xgboost.callback import TrainReportCallback as TrainReportCallback
    from holdfast.train.xgboost.callback import XGBoostCheckpoint as XGBoostCheckpoint
    from holdfast.train.xgboost.trainer import XGBoostConfig as XGBoostConfig
    from holdfast.train.xgboost.trainer import XGBoostTrainer as XGBoostTrainer

    RayTrainReportCallback = TrainReportCallback

__getattr__, __dir__, __all__ = lazy(__name__, needs=XGBOOST)
