"""A checkpoint of a LightGBM model alone, saved and loaded in one call each."""

from __future__ import annotations

from typing import Self

from lightgbm import Booster

from holdfast.train.lightgbm.callback import CHECKPOINT_NAME, TrainReportCallback
from holdfast.train.model_checkpoint import ModelCheckpoint


class LightGBMCheckpoint(ModelCheckpoint):
    """A checkpoint with a model in `model.txt`, as the report callback and LightGBMTrainer save
    it."""

    MODEL_FILENAME = CHECKPOINT_NAME

    @classmethod
    def from_model(cls, booster: Booster) -> Self:
        """A checkpoint of the model, in a temporary directory that is removed with it."""
        return cls.saved(cls.MODEL_FILENAME, booster.save_model)

    def get_model(self) -> Booster:
        """The model. Raises FileNotFoundError, which lists the files that there are."""
        return TrainReportCallback.get_model(self, self.MODEL_FILENAME)
