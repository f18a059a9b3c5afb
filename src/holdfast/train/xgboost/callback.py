"""The callback that reports each round of an XGBoost training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from xgboost import Booster
from xgboost.callback import TrainingCallback

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.reporting import Metrics, ModelCheckpoint, RoundReports, saved
from holdfast.trial.errors import InvalidConfig

CHECKPOINT_NAME = "model.ubj"


class TrainReportCallback(TrainingCallback):
    """Reports the evaluations of `xgboost.train(..., evals=...)`, each round as one iteration.

    `metrics` chooses what to report: one name, a list of names, a dict that maps the names to
    report to XGBoost's, or None for all. XGBoost's names have the form `<name in evals>-<metric>`.
    Rank 0 saves the model as `filename` after every `frequency`-th round (0: never) and, with
    `checkpoint_at_end`, after the last one; `xgboost.cv` has none. Rounds are counted over all
    attempts.
    `results_postprocessing_fn` may change the metrics before they are reported.

    A round is reported when the next one begins or the training ends. So the last round is known,
    even after an early stop, and each round is reported once.

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
            metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """The model in a checkpoint. Raises FileNotFoundError if there is none."""
        booster = Booster()
        with saved(checkpoint, filename) as path:
            booster.load_model(path)
        return booster

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._report(model, is_last=False)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._reports.hold(newest(evals_log))
        return False

    def after_training(self, model: Any) -> Any:
        self._report(model, is_last=isinstance(model, Booster))
        return model

    def _report(self, model: Any, *, is_last: bool) -> None:
        rounds = model.num_boosted_rounds()
        self._reports.report(rounds, partial(_save, model), is_last=is_last)


def newest(evals_log: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The last round's values, as `train-logloss`. With `xgboost.cv` each is (mean, deviation)."""
    return {
        f"{data}-{metric}": values[-1]
        for data, metrics in evals_log.items()
        for metric, values in metrics.items()
    }


def _save(model: Any, path: str) -> None:
    if not isinstance(model, Booster):
        raise InvalidConfig(
            "xgboost.cv trains a model for each fold, and keeps none: report it with frequency=0"
        )
    model.save_model(path)


class XGBoostCheckpoint(ModelCheckpoint):
    """A checkpoint with a model in `model.ubj`, as the report callback and XGBoostTrainer save
    it."""

    MODEL_FILENAME = CHECKPOINT_NAME

    @classmethod
    def from_model(cls, booster: Booster) -> Self:
        """A checkpoint of the model, in a temporary directory that is removed with it."""
        return cls.saved(cls.MODEL_FILENAME, booster.save_model)

    def get_model(self) -> Booster:
        """The model. Raises FileNotFoundError, which lists the files that there are."""
        return TrainReportCallback.get_model(self, self.MODEL_FILENAME)
