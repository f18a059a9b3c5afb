"""A checkpoint of a Keras model alone, saved and loaded in one call each."""

from __future__ import annotations

from typing import Any, Self

from holdfast.train.model_checkpoint import ModelCheckpoint
from holdfast.train.tensorflow.callback import CHECKPOINT_NAME, ReportCheckpointCallback


class TensorflowCheckpoint(ModelCheckpoint):
    """A checkpoint with a Keras model in `model.keras`, as the report callback saves it."""

    MODEL_FILENAME = CHECKPOINT_NAME

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """A checkpoint of the model, in a temporary directory that is removed with it."""
        return cls.saved(cls.MODEL_FILENAME, model.save)

    def get_model(self) -> Any:
        """The model, compiled if it was. Raises FileNotFoundError, which lists the files that
        there are."""
        return ReportCheckpointCallback.get_model(self, self.MODEL_FILENAME)
