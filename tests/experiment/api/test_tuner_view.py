"""A Tuner shows what it will run, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.train import DataParallelTrainer
from tests.rig.runs.recorded import RecordedExperiment


class Model:
    def __repr__(self) -> str:
        pytest.fail("a repr of the user's may take a gigabyte")


def learn(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


@pytest.fixture
def tuner() -> tune.Tuner:
    return tune.Tuner(
        learn,
        param_space={
            "lr": tune.loguniform(1e-4, 1),
            "net": {"width": tune.grid_search([32, 64])},
            "model": Model(),
            "<b>": "a & b",
        },
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=8,
            max_concurrent_trials=2,
            scheduler=tune.schedulers.ASHAScheduler(),
        ),
        run_config=tune.RunConfig(
            name="digits",
            storage_path="s3://AKIA123:hunter2@bucket/runs?endpoint_override=http://h:1",
            stop={"training_iteration": 9},
        ),
    )


def test_a_tuner_shows_its_space_goal_and_storage_without_secrets(tuner: tune.Tuner) -> None:
    assert repr(tuner).splitlines() == [
        "Tuner(learn)",
        "  lr: loguniform(0.0001, 1.0)",
        "  net/width: grid_search([32, 64])",
        "  model: <Model>",
        "  <b>: 'a & b'",
        "  metric: loss (min)",
        "  num_samples: 8",
        "  max_concurrent_trials: 2",
        "  scheduler: ASHAScheduler",
        "  stop: training_iteration=9",
        "  storage: s3://bucket/runs/digits?endpoint_override=http://h:1",
        "  state: not started: call fit()",
    ]


def test_its_html_says_the_same_escaped(tuner: tune.Tuner) -> None:
    text = tuner._repr_html_()
    assert "<tr><td>lr</td><td>loguniform(0.0001, 1.0)</td></tr>" in text
    assert "<tr><td>&lt;b&gt;</td><td>&#x27;a &amp; b&#x27;</td></tr>" in text
    assert "ASHAScheduler" in text
    assert "hunter2" not in text + repr(tuner)


def test_a_tuner_of_a_trainer_has_its_name() -> None:
    trainer = DataParallelTrainer(learn, train_loop_config={"lr": 1})
    assert repr(tune.Tuner(trainer)).splitlines()[:2] == [
        "Tuner(DataParallelTrainer)",
        "  train_loop_config/lr: 1",
    ]


def test_a_long_space_is_cut() -> None:
    space = {f"p{index}": tune.choice(list(range(1000))) for index in range(200)}
    shown = repr(tune.Tuner(learn, param_space=space))
    assert "... 150 more" in shown
    assert len(shown) < 10_000


def test_a_storage_that_cannot_be_resolved_is_shown_and_not_raised() -> None:
    tuner = tune.Tuner(learn, run_config=tune.RunConfig(storage_path="s4://bucket"))
    assert "neither pyarrow nor fsspec knows the protocol 's4'" in repr(tuner)


def test_a_restored_tuner_says_where_it_is_and_what_fit_does(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp", metric="loss", mode="min")
    trial_id = run.begin({"lr": 1})
    run.report(trial_id, {"loss": 1.0})
    run.ends()

    def train(config: dict[str, Any]) -> None:
        pass

    tuner = tune.Tuner.restore(str(tmp_path / "exp"), train, param_space={})
    assert f"storage: {tmp_path / 'exp'}" in repr(tuner)
    assert "state: restored: fit() resumes it" in repr(tuner)
    assert train.__name__ in tuner._repr_html_()
