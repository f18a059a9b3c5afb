"""Callbacks that report the rounds of an XGBoost training to its trial."""

from __future__ import annotations

from holdfast.train.reporting import WithoutCheckpoints
from holdfast.train.xgboost import TrainReportCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(TrainReportCallback):
    """`holdfast.train.xgboost.TrainReportCallback` under the name that Tune scripts use."""


class TuneReportCallback(WithoutCheckpoints, TrainReportCallback):
    """Reports as `TuneReportCheckpointCallback` does, without checkpoints."""
