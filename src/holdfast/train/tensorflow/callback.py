"""The callback that reports Keras metrics, with checkpoints from which a training resumes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from holdfast.experiment.worker.context import get_checkpoint, get_context, report
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.reporting import (
    Metrics,
    ModelCheckpoint,
    check_metrics,
    chosen,
    report_saved,
    saved,
    say_nothing_reported,
)
from holdfast.trial.errors import InvalidConfig

if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
    from tensorflow import keras  # which is tf_keras then
else:
    import keras  # needs no TensorFlow

CHECKPOINT_NAME = "model.keras"
_PROGRESS = "progress.json"

# The events of Keras, in the order of its documentation.
EVENTS = tuple(
    f"{of}_{when}"
    for of in (
        "epoch", "train_batch", "test_batch", "predict_batch", "train", "test", "predict",
    )
    for when in ("begin", "end")
)  # fmt: skip


class ReportCheckpointCallback(keras.callbacks.Callback):
    """Reports Keras's logs, and the model as a checkpoint that `model.save` writes.

    `checkpoint_on` and `report_metrics_on` are Keras events, or lists of them: `epoch_end`,
    `train_batch_end`, `test_end` and so on. An event in both causes one report. `metrics` chooses
    what to report: one name, a list of names, a dict that maps the names to report to Keras's, or
    None for all.

    `resume` continues from the newest checkpoint of the trial:

        report = ReportCheckpointCallback()
        model.fit(data, epochs=10, initial_epoch=report.resume(model), callbacks=[report])

    Raises InvalidConfig.
    """

    CHECKPOINT_NAME = CHECKPOINT_NAME

    def __init__(
        self,
        checkpoint_on: str | Sequence[str] = "epoch_end",
        report_metrics_on: str | Sequence[str] = "epoch_end",
        metrics: Metrics = None,
    ) -> None:
        super().__init__()
        check_metrics(metrics)
        self._metrics = metrics
        self._saves = _events("checkpoint_on", checkpoint_on)
        self._epochs = 0
        # First, so that the end of an epoch is counted before it is reported.
        for event in ("epoch_begin", "epoch_end"):
            self._follow(event, self._counted)
        self._events = self._saves | _events("report_metrics_on", report_metrics_on)
        self._has_reported = False
        for event in self._events:
            self._follow(event, self._reported)
        self._follow("train_end", self._ended)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """The compiled model in a checkpoint. Raises FileNotFoundError if there is none."""
        with saved(checkpoint, filename) as path:
            return keras.models.load_model(path)

    def resume(self, model: Any) -> int:
        """Load the trial's newest checkpoint into the compiled model and its optimizer.

        Returns the epoch to start with: 0 without a checkpoint. An interrupted epoch starts again.
        Raises what Keras raises for a different model.
        """
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return 0
        with checkpoint.as_directory() as folder:
            optimizer = getattr(model, "optimizer", None)
            if optimizer is not None and not getattr(optimizer, "built", False):
                optimizer.build(model.trainable_variables)
            model.load_weights(os.path.join(folder, self.CHECKPOINT_NAME))
            progress = json.loads(Path(folder, _PROGRESS).read_text())
        return int(progress["epochs"])

    def _follow(self, event: str, act: Callable[[str, Any, Any], None]) -> None:
        """Call `act` after the existing hook: Keras calls only hooks that a subclass defines."""
        name = f"on_{event}"
        before = getattr(self, name)

        def hook(*given: Any, logs: Mapping[str, Any] | None = None) -> None:
            index = given[0] if given and isinstance(given[0], int) else None
            found = logs if logs is not None else given[-1] if len(given) > 1 else None
            before(*given) if logs is None else before(*given, logs=logs)
            act(event, index, found)

        setattr(self, name, hook)

    def _counted(self, event: str, index: int | None, logs: Any) -> None:
        self._epochs = (index or 0) + (event == "epoch_end")

    def _ended(self, event: str, index: int | None, logs: Any) -> None:
        own = sorted(event for event in self._events if not event.startswith("predict"))
        if own and not self._has_reported:
            say_nothing_reported(
                f"Keras has not called {' or '.join(own)} in it; test_... comes of validation_data"
            )

    def _reported(self, event: str, index: int | None, logs: Any) -> None:
        self._has_reported = True
        row = chosen(logs or {}, self._metrics)
        if event not in self._saves:
            report(row)
            return
        if get_context().get_world_rank():
            self._take_part()
        report_saved(row, self.CHECKPOINT_NAME, self._save)

    def _save(self, path: str) -> None:
        self.model.save(path)
        progress = json.dumps({"epochs": self._epochs})
        Path(path).with_name(_PROGRESS).write_text(progress)

    def _take_part(self) -> None:
        """Join the gathering of variables that are spread over the ranks."""
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(os.path.join(folder, self.CHECKPOINT_NAME))


def _events(name: str, given: Any) -> set[str]:
    """Raises InvalidConfig for a name that is not a Keras event."""
    events = {given} if isinstance(given, str) else set(given)
    for event in sorted(events - set(EVENTS)):
        raise InvalidConfig(f"{name}={given!r}: {event!r} is not one of {', '.join(EVENTS)}")
    return events


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
