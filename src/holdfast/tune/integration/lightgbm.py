"""Callbacks that report the rounds of a LightGBM training to its trial."""

from __future__ import annotations

from holdfast.train.lightgbm import TrainReportCallback
from holdfast.train.reporting import WithoutCheckpoints

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(TrainReportCallback):
    """`holdfast.train.lightgbm.TrainReportCallback` under the name that Tune scripts use."""


class TuneReportCallback(WithoutCheckpoints, TrainReportCallback):
    """Reports as `TuneReportCheckpointCallback` does, without checkpoints."""
