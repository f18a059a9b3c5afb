"""Callbacks that report the rounds of an XGBoost training to its trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.train.reporting import Metrics
from holdfast.train.xgboost import TrainReportCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(TrainReportCallback):
    """`holdfast.train.xgboost.TrainReportCallback`, by the name that scripts for tune have."""


class TuneReportCallback(TrainReportCallback):
    """Reports as `TuneReportCheckpointCallback` does, without checkpoints."""

    def __init__(
        self,
        metrics: Metrics = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(
            metrics=metrics,
            checkpoint_at_end=False,
            results_postprocessing_fn=results_postprocessing_fn,
        )
