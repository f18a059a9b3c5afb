"""A checkpoint of an XGBoost model alone, saved and loaded in one call each."""

from __future__ import annotations

from typing import Self

from xgboost import Booster

from holdfast.train.model_checkpoint import ModelCheckpoint
from holdfast.train.xgboost.callback import CHECKPOINT_NAME, TrainReportCallback


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
