"""Whole runs of populations: the configs of their trials, and their files."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.recovery import recover
from holdfast.results.doctor.verify import verify
from holdfast.results.reading import ExperimentSite
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.values import Ref
from holdfast.tune.schedulers import (
    PB2,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from tests.rig import checker


def train(config: dict[str, Any]) -> None:
    """Each epoch multiplies the loss by `rate`."""
    loss, first = 1.0, 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            loss, first = json.loads(Path(folder, "state.json").read_text())
    for epoch in range(first, 5):
        loss *= config["net"]["rate"]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps([loss, epoch + 1]))
            row = {"loss": loss, "rate": config["net"]["rate"]}
            tune.report(row, checkpoint=tune.Checkpoint.from_directory(folder))


class Trained(tune.Trainable):
    """The same as a class, which is reused with another config."""

    def setup(self, config: dict[str, Any]) -> None:
        self.loss = 1.0

    def step(self) -> dict[str, Any]:
        rate = self.config["net"]["rate"]
        self.loss *= rate
        return {"loss": self.loss, "rate": rate}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"loss": self.loss}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.loss = checkpoint["loss"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


def pbt(**given: Any) -> PopulationBasedTraining:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        quantile_fraction=0.5,
        hyperparam_mutations={"net": {"rate": tune.uniform(0.1, 0.9)}},
        **given,
    )


def rows(result: tune.Result) -> list[dict[str, Any]]:
    lines = Path(result.path, "result.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def goal(scheduler: Any, **given: Any) -> tune.TuneConfig:
    return tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler, **given)


SPACE = {"net": {"rate": tune.grid_search([0.9, 0.5]), "fn": max}, "kept": 7}


def explore(config: dict[str, Any]) -> dict[str, Any]:
    """A clone's rate is unique; the user's own object is in its config."""
    assert config["net"]["fn"] is max
    return {**config, "net": {**config["net"], "rate": 0.25}}


def test_a_population_in_step_shows_what_each_trial_trained_with(fit: Any) -> None:
    keep = tune.CheckpointConfig(num_to_keep=1)
    policy = pbt(synch=True, custom_explore_fn=explore)
    results = fit(train, SPACE, goal(policy), checkpoint_config=keep)
    worse, _ = results
    # 0.9 is cloned from 0.5 after two epochs, and then has 0.25; 0.5 is cloned after four.
    assert [round(row["loss"], 6) for row in rows(worse)] == [0.9, 0.81, 0.0625, 0.015625]
    assert [row["config"]["net"]["rate"] for row in rows(worse)] == [0.9, 0.9, 0.25, 0.25]
    assert worse.config == {"net": {"rate": 0.25, "fn": max}, "kept": 7}
    assert json.loads(Path(worse.path, "params.json").read_text())["net"]["rate"] == 0.25
    with Path(worse.path, "progress.csv").open(newline="") as file:
        assert [row["rate"] for row in csv.DictReader(file)] == ["0.9", "0.9", "0.25", "0.25"]
    root = Path(results.experiment_path)
    first, *_ = [json.loads(line) for line in (root / "pbt_global.txt").read_text().splitlines()]
    assert first[2:4] == [2, 2]
    assert (first[4]["net"]["rate"], first[5]["net"]["rate"]) == (0.5, 0.25)
    (changed, _) = recover(Layout(root)).machine.trials.values()
    assert isinstance(changed.config["net"]["fn"], Ref)  # a restore may pass another one
    assert checker.check(root) == []
    log = root / f"pbt_policy_{worse.metrics['trial_id']}.txt"
    space = {"net": {"fn": max}}
    (again,) = fit(train, space, goal(PopulationBasedTrainingReplay(log)), name="replay")
    assert [round(row["loss"], 6) for row in rows(again)] == [0.5, 0.25, 0.0625, 0.015625]
    assert again.config == worse.config


@pytest.mark.parametrize("reuse", [False, True])
def test_class_trainables_of_a_population_save_themselves_and_are_loaded(
    fit: Any, reuse: bool
) -> None:
    results = fit(
        Trained,
        {"net": {"fn": max}},
        goal(pbt(synch=True), num_samples=3, reuse_actors=reuse),
        stop={"training_iteration": 6},
    )
    assert [result.metrics["training_iteration"] for result in results] == [6, 6, 6]
    root = Path(results.experiment_path)
    logged = [json.loads(line) for line in (root / "pbt_global.txt").read_text().splitlines()]
    assert logged
    for result in results:
        assert result.config["net"]["rate"] == rows(result)[-1]["rate"]
    assert verify(ExperimentSite(shown="", layout=Layout(root), remote=None)).findings == ()


def test_the_bandit_trains_a_population(fit: Any) -> None:
    bounds = {"net": {"rate": [0.1, 0.9]}}
    policy = PB2("training_iteration", perturbation_interval=1, hyperparam_bounds=bounds)
    results = fit(train, {}, goal(policy, num_samples=3))
    assert all(result.error is None for result in results)
    assert all(0.1 <= result.config["net"]["rate"] <= 0.9 for result in results)


def test_trainables_that_save_nothing_are_refused_and_the_name_stays_free(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    class Forgets(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"loss": 1.0}

    with pytest.raises(InvalidConfig, match="Forgets makes none"):
        fit(Forgets, SPACE, goal(pbt()))

    def forgets(config: dict[str, Any]) -> None:
        for _ in range(4):
            tune.report({"loss": 1.0})

    with pytest.raises(TuneError, match="has reported none until training_iteration=2") as caught:
        fit(forgets, SPACE, goal(pbt()), name="exp")
    assert str(caught.value).endswith("call fit() again: the name of the run is free for it")
    fit(train, SPACE, goal(pbt()), name="exp", verbose=1)
    assert "has no checkpoint. Its files are kept" in capfd.readouterr().err


def test_an_error_in_the_users_exploration_ends_the_run_with_it(fit: Any) -> None:
    def explore(config: dict[str, Any]) -> dict[str, Any]:
        raise LookupError("no such optimizer")

    with pytest.raises(Exception, match="no such optimizer"):
        fit(train, SPACE, goal(pbt(custom_explore_fn=explore, synch=True)))


@pytest.mark.parametrize("text", [None, "", "[1, 2]\n"])
def test_a_replay_needs_the_log_of_a_policy(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "pbt_policy_x.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidConfig, match=r"PopulationBasedTrainingReplay\(policy_file="):
        PopulationBasedTrainingReplay(path)
