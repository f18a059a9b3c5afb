"""HyperBand with real workers: trials pause at milestones and go on from their checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.schedulers import HyperBandScheduler


def note(config: dict[str, Any], epoch: int) -> None:
    with open(config["trained"], "a") as lines:
        lines.write(f"{config['quality']} {epoch}\n")


def train(config: dict[str, Any]) -> None:
    epoch = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            epoch = json.loads(Path(folder, "state.json").read_text())
    while True:
        epoch += 1
        note(config, epoch)
        Path("new").mkdir(exist_ok=True)
        Path("new", "state.json").write_text(json.dumps(epoch))
        tune.report({"score": config["quality"]}, checkpoint=tune.Checkpoint.from_directory("new"))


class Training(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.epoch = 0

    def step(self) -> dict[str, Any]:
        self.epoch += 1
        note(self.config, self.epoch)
        return {"score": self.config["quality"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state.json").write_text(json.dumps(self.epoch))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.epoch = json.loads(Path(checkpoint_dir, "state.json").read_text())


@pytest.mark.parametrize("trainable", [train, Training])
def test_each_milestone_halves_those_that_have_come_and_no_epoch_is_trained_twice(
    fit: Any, tmp_path: Path, trainable: Any
) -> None:
    trained = tmp_path / "trained"
    space = {"quality": tune.grid_search([1, 4, 2, 3]), "trained": str(trained)}
    scheduler = HyperBandScheduler(max_t=4, reduction_factor=2)
    goal = tune.TuneConfig(metric="score", mode="max", scheduler=scheduler)
    results = fit(trainable, space, goal)
    ends = {result.config["quality"]: result.metrics["training_iteration"] for result in results}
    assert ends == {1: 1, 2: 1, 3: 2, 4: 4}
    epochs = [f"{quality} {epoch}" for quality in ends for epoch in range(1, ends[quality] + 1)]
    assert sorted(trained.read_text().splitlines()) == sorted(epochs)
