"""Files and folders of the script's own that have the names of holdfast's in a trial's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.fit.conftest import Fit

NAMES = ("params.json", "progress.csv", "result.json", "error.txt", "params.pkl")


def train(config: dict[str, Any]) -> None:
    attempt = tune.get_context().get_attempt()
    for epoch in range(3):
        for name in NAMES:
            Path(name).write_text(f"{name} of attempt {attempt}, epoch {epoch}")
        own = Path(f"checkpoint_{epoch:06d}")
        own.mkdir(exist_ok=True)
        (own / "model").write_text(f"{attempt} {epoch}")
        tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(own))
        if epoch == 1 and attempt == 1:
            raise RuntimeError("once")


def check(trial: Path) -> None:
    for name in NAMES:
        kept = trial / (name if name == "params.pkl" else f"{name}.of-script")
        assert kept.read_text() == f"{name} of attempt 2, epoch 2"
    rows = [json.loads(line) for line in (trial / "result.json").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 0, 1, 2]
    assert len((trial / "progress.csv").read_text().splitlines()) == 6
    assert json.loads((trial / "params.json").read_text()) == {"x": 1}
    assert (trial / "error.txt").read_text().startswith("Attempt 1 failed at ")
    for epoch in range(3):
        folder = trial / f"checkpoint_{epoch:06d}"
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [
            ("model", f"2 {epoch}")
        ]
    assert sorted(path.name for path in trial.glob("checkpoint_1*")) == ["checkpoint_100004"]


def test_they_are_kept_over_a_retry_and_a_restore_and_it_is_said_once(
    fit: Fit, capfd: pytest.CaptureFixture[str]
) -> None:
    (result,) = fit(
        train,
        {"x": 1},
        verbose=1,
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
    )
    assert result.error is None
    trial = Path(result.path)
    check(trial)
    assert capfd.readouterr().err.count("of its own in its folder") == 1
    again = tune.Tuner.restore(str(trial.parent), train).fit()
    assert again[0].error is None
    check(trial)
    loaded = tune.load(str(trial.parent))[0]
    assert loaded.metrics is not None
    assert loaded.metrics["epoch"] == 2
    assert loaded.checkpoint is not None
    assert Path(loaded.checkpoint.path, "model").read_text() == "2 2"
