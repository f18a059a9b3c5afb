"""Callbacks that report the metrics of a Keras model to its trial."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.train.reporting import Metrics
from holdfast.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(ReportCheckpointCallback):
    """Reports metrics and the model `on` these events of Keras; see ReportCheckpointCallback."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=on, report_metrics_on=on, metrics=metrics)


class TuneReportCallback(ReportCheckpointCallback):
    """Reports as `TuneReportCheckpointCallback` does, without checkpoints."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=(), report_metrics_on=on, metrics=metrics)
