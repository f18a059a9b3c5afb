"""HyperBand with real workers: trials pause at milestones and resume from their checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.tune.schedulers import HyperBandScheduler
from holdfast.tune.search import Searcher


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


class OneAtATime(Searcher):
    """Suggests a trial while none runs: a paused one does not."""

    def __init__(self) -> None:
        super().__init__()
        self.left = [1, 4, 2, 3]
        self.running: set[str] = set()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if not self.left:
            return FINISHED
        if self.running:
            return None
        self.running.add(trial_id)
        return {"quality": self.left.pop(0)}

    def on_pause(self, trial_id: str) -> None:
        self.running.remove(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.running.add(trial_id)

    def on_trial_complete(self, trial_id: str, *end: Any, **more: Any) -> None:
        self.running.discard(trial_id)


@pytest.mark.parametrize(("trainable", "search"), [(train, OneAtATime()), (Training, None)])
def test_each_milestone_halves_those_that_have_come_and_no_epoch_is_trained_twice(
    fit: Any, tmp_path: Path, trainable: Any, search: Searcher | None
) -> None:
    trained = tmp_path / "trained"
    space: dict[str, Any] = {"trained": str(trained)}
    if search is None:
        space["quality"] = tune.grid_search([1, 4, 2, 3])
    goal = tune.TuneConfig(
        metric="score",
        mode="max",
        scheduler=HyperBandScheduler(max_t=4, reduction_factor=2),
        search_alg=search,
        num_samples=4 if search else 1,
    )
    results = fit(trainable, space, goal)
    ends = {result.config["quality"]: result.metrics["training_iteration"] for result in results}
    assert ends == {1: 1, 2: 1, 3: 2, 4: 4}
    epochs = [f"{quality} {epoch}" for quality in ends for epoch in range(1, ends[quality] + 1)]
    assert sorted(trained.read_text().splitlines()) == sorted(epochs)
