"""Keras 3 on torch, without TensorFlow: the callback in a trial that dies and resumes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune

pytestmark = pytest.mark.process

EPOCHS = 4


@pytest.fixture(autouse=True)
def _on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")


def fit(config: dict[str, Any]) -> None:
    import keras
    import numpy as np

    from holdfast.train.tensorflow.keras import ReportCheckpointCallback

    class Dies(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2 and tune.get_context().get_attempt() == config["dies_in"]:
                os.kill(os.getpid(), signal.SIGKILL)

    keras.utils.set_random_seed(1)
    data = np.random.default_rng(1).normal(size=(64, 3))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
    reports = ReportCheckpointCallback()
    begin = reports.resume(model)
    model.fit(
        data,
        data.sum(axis=1),
        epochs=EPOCHS,
        initial_epoch=begin,
        shuffle=False,
        verbose=0,
        callbacks=[reports, Dies()],
    )
    assert keras.backend.backend() == "torch"
    assert "tensorflow" not in sys.modules


@pytest.mark.smoke
def test_a_killed_fit_comes_to_the_same_numbers(tmp_path: Path) -> None:
    killed, whole = tune.Tuner(
        fit,
        param_space={"dies_in": tune.grid_search([1, 0])},
        run_config=tune.RunConfig(
            storage_path=str(tmp_path),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    ).fit()
    losses = [[row["loss"] for row in one.rows()] for one in (killed, whole)]
    assert [len(one) for one in losses] == [EPOCHS, EPOCHS]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] == sorted(losses[0], reverse=True)
