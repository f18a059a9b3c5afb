"""Reports each round of an XGBoost training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xgboost import Booster
from xgboost.callback import TrainingCallback

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.boosting import RoundReports
from holdfast.train.reporting import Metrics, saved
from holdfast.trial.errors import InvalidConfig

CHECKPOINT_NAME = "model.ubj"


class TrainReportCallback(TrainingCallback):
    """Reports what `xgboost.train(..., evals=...)` has evaluated, each round as one iteration.

    `metrics`: a name, a list of names, a dict of names by what to report them as, or None for all;
    a name is `<name in evals>-<metric>`. Of every `frequency`-th round, 0 for none, and of the
    last one (`checkpoint_at_end`) the model is saved by rank 0 as `filename`; rounds are counted
    over all attempts. `results_postprocessing_fn` may change what is reported.

    A round is reported as the next one begins, or the training ends: nothing is between, and so
    the last one is known, also after an early stop, and reported once.

    Raises InvalidConfig.
    """

    CHECKPOINT_NAME = CHECKPOINT_NAME

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._reports = RoundReports(
            metrics=metrics,
            filename=filename,
            frequency=frequency,
            checkpoint_at_end=checkpoint_at_end,
            results_postprocessing_fn=results_postprocessing_fn,
        )
        self._row: dict[str, Any] | None = None

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """The model in a checkpoint. Raises FileNotFoundError where there is none."""
        booster = Booster()
        with saved(checkpoint, filename) as path:
            booster.load_model(path)
        return booster

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._report(model, is_last=False)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._row = self._reports.row(newest(evals_log))
        return False

    def after_training(self, model: Any) -> Any:
        self._report(model, is_last=True)
        return model

    def _report(self, model: Any, *, is_last: bool) -> None:
        row, self._row = self._row, None
        if row is not None:
            rounds = model.num_boosted_rounds()
            self._reports.report(row, rounds, lambda path: _save(model, path), is_last=is_last)


def newest(evals_log: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The last round's values, as `train-logloss`. Of `xgboost.cv` they are (mean, deviation)."""
    return {
        f"{data}-{metric}": values[-1]
        for data, metrics in evals_log.items()
        for metric, values in metrics.items()
    }


def _save(model: Any, path: str) -> None:
    if not isinstance(model, Booster):
        raise InvalidConfig(
            "xgboost.cv trains a model for each fold, and keeps none: report it with "
            "checkpoint_at_end=False and frequency=0"
        )
    model.save_model(path)
