"""HyperBand with real workers: trials pause at milestones and resume from their checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    PauseTrial,
    StopTrial,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.tune.schedulers import HyperBandScheduler
from holdfast.tune.search import Searcher
from tests.rig import checker


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


class SavesSlowly(Training):
    """The first trial saves itself, for its pause, until the second one has had it ended."""

    def step(self) -> dict[str, Any]:
        self.epoch += 1
        if self.config["quality"] == 2:
            name, mode = ("saving", "r") if self.epoch == 1 else ("ended", "w")
            Path(self.config["pipes"], name).open(mode).close()
        return {"score": self.config["quality"], "done": self.epoch == 2}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        super().save_checkpoint(checkpoint_dir)
        Path(self.config["pipes"], "saving").open("w").close()
        Path(self.config["pipes"], "ended").open("r").close()


class EndsThePaused(TrialScheduler):
    """Pauses the first trial at its report, and ends it at the second one's."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        first = next(iter(view.trials))
        match event:
            case TrialReported(trial_id=trial_id) if trial_id == first:
                return [PauseTrial(trial_id=first)]
            case TrialReported(trial_id=trial_id) if view.trials[trial_id].iteration == 1:
                return [StopTrial(trial_id=first, why="it is the worst")]
            case _:
                return ()


def test_a_checkpoint_for_a_pause_is_removed_if_the_trial_has_been_ended(
    fit: Any, tmp_path: Path
) -> None:
    for name in ("saving", "ended"):
        os.mkfifo(tmp_path / name)
    space = {"quality": tune.grid_search([1, 2]), "pipes": str(tmp_path)}
    held = tune.with_resources(SavesSlowly, {"cpu": 0.5})
    results = fit(held, space, tune.TuneConfig(scheduler=EndsThePaused()))
    first, _ = results
    assert (first.stop_reason, first.checkpoint) == ("stopped", None)
    problems = checker.check(Path(results.experiment_path))
    assert [one for one in problems if ".config." not in one] == []
    assert list(Path(first.path).glob("checkpoint_*")) == []
