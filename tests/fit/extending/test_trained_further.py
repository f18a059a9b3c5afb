"""A finished training that is trained further, with another config or stop condition."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.cli import main
from holdfast.train import DataParallelTrainer
from holdfast.trial.errors import InvalidConfig, TuneError
from tests.rig.epochs import resumed, saved

pytestmark = pytest.mark.process

Made = Callable[..., DataParallelTrainer]


def loop(config: dict[str, Any]) -> None:
    """Counts epochs up to `epochs`; fails at the epoch `fails` if it has begun before that."""
    begun = resumed()
    for epoch in range(begun + 1, config["epochs"] + 1):
        checkpoint = saved(epoch) if config.get("saves", True) else None
        train.report({"epoch": epoch, "begun": begun}, checkpoint=checkpoint)
        if epoch == config.get("fails") and begun < epoch - 1:
            raise ValueError("once")


def function(config: dict[str, Any], epochs: int) -> None:
    loop({**config, "epochs": epochs})


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(stop: Any = None, **config: Any) -> DataParallelTrainer:
        return DataParallelTrainer(
            loop,
            train_loop_config=config,
            run_config=train.RunConfig(storage_path=tmp_path, name="run", stop=stop),
        )

    return make


def counted(result: train.Result) -> tuple[int, int]:
    assert result.metrics is not None
    return result.metrics["epoch"], result.metrics["begun"]


@pytest.mark.rest
def test_a_finished_training_goes_on_where_its_config_changed(
    made: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert counted(made(epochs=3).fit()) == (3, 0)
    assert counted(made(epochs=5).fit(resume="auto")) == (5, 3)
    assert "train_loop_config/epochs: was 3, now 5" in capfd.readouterr().err
    assert counted(made(epochs=5).fit(resume="auto")) == (5, 3)
    assert "another train_loop_config or stop trains further" in capfd.readouterr().err
    path = tmp_path / "run"
    further = partial(DataParallelTrainer.restore, path, train_loop_config={"epochs": 7})
    assert counted(further().fit()) == (7, 5)
    last = further().fit()
    assert counted(last) == (7, 5)
    assert last.config is not None
    assert last.config["train_loop_config"] == {"epochs": 7}
    assert json.loads(Path(last.path, "params.json").read_text()) == last.config
    rows = [json.loads(row) for row in Path(last.path, "result.json").read_text().splitlines()]
    assert [(row["training_iteration"], row["epoch"]) for row in rows] == [
        (n, n) for n in range(1, 8)
    ]
    assert main(["show", str(path)]) == 0
    assert "the last time from iteration 5" in capfd.readouterr().out
    assert counted(DataParallelTrainer.restore(path).fit()) == (7, 5)


def test_a_further_training_that_fails_keeps_its_new_config(made: Made, tmp_path: Path) -> None:
    assert counted(made(epochs=2).fit()) == (2, 0)
    with pytest.raises(TuneError, match="once"):
        made(epochs=5, fails=4).fit(resume="auto")
    assert counted(DataParallelTrainer.restore(tmp_path / "run").fit()) == (5, 4)


def test_a_training_without_a_checkpoint_begins_again(
    made: Made, capfd: pytest.CaptureFixture[str]
) -> None:
    assert counted(made(epochs=2, saves=False).fit()) == (2, 0)
    assert counted(made(epochs=3, saves=False).fit(resume="auto")) == (3, 0)
    assert "it begins again: it has no checkpoint" in capfd.readouterr().err


def test_a_training_that_stop_had_ended_goes_on_with_another(made: Made) -> None:
    assert counted(made(stop={"epoch": 2}, epochs=9).fit()) == (2, 0)
    assert counted(made(stop={"epoch": 4}, epochs=9).fit(resume="auto")) == (4, 2)
    assert counted(made(stop={"epoch": 3}, epochs=9).fit(resume="auto")) == (4, 2)


def test_nothing_is_unpickled_of_a_training_that_is_not_trusted(
    made: Made, tmp_path: Path
) -> None:
    made(epochs=2).fit()
    assert counted(made(epochs=3).fit(resume="auto", trusted=False)) == (3, 2)
    again: dict[str, Any] = {"trusted": False, "trainer": made(epochs=4)}
    assert counted(DataParallelTrainer.restore(tmp_path / "run", **again).fit()) == (4, 3)
    again["trainer"] = made(epochs=4)
    config = {"epochs": 5}
    assert counted(
        DataParallelTrainer.restore(tmp_path / "run", train_loop_config=config, **again).fit()
    ) == (5, 4)


def test_finished_trials_of_a_function_that_trains_longer_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def tuner(epochs: int) -> tune.Tuner:
        def train(config: dict[str, Any]) -> None:
            function(config, epochs)

        space = {"x": tune.grid_search([1, 2])}
        run = tune.RunConfig(storage_path=tmp_path, name="run")
        return tune.Tuner(train, param_space=space, run_config=run)

    assert [counted(one) for one in tuner(2).fit(resume="auto")] == [(2, 0)] * 2
    assert [counted(one) for one in tuner(4).fit(resume="auto")] == [(2, 0)] * 2
    assert "resume_config=ResumeConfig(finished='resume')" in capfd.readouterr().err
    further = tune.ResumeConfig(finished="resume")
    results = tuner(4).fit(resume="auto", resume_config=further)
    assert [counted(one) for one in results] == [(4, 2)] * 2


def test_another_number_of_samples_is_no_training_further(made: Made, tmp_path: Path) -> None:
    made(epochs=1).fit()
    with pytest.raises(InvalidConfig, match="A restore cannot change num_samples"):
        tune.Tuner.restore(tmp_path / "run", num_samples=2, extend=True)
