"""LightGBM on several ranks and in trials: real trainings, killed and gone on with."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

from holdfast import train, tune
from holdfast.testing.bench import Bench, results
from holdfast.train.lightgbm import (
    LightGBMTrainer,
    RayTrainReportCallback,
    TrainReportCallback,
    get_network_params,
)
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.integration.lightgbm import TuneReportCallback, TuneReportCheckpointCallback

pytestmark = pytest.mark.process

PARAMS = {
    "objective": "binary",
    "num_leaves": 4,
    "learning_rate": 0.5,
    "min_data_in_bin": 1,
    "min_data_in_leaf": 5,
    "verbosity": -1,
}


def frame(rows: int = 160, seed: int = 0) -> pd.DataFrame:
    """Few values, so that several ranks find the same bounds between them as one does."""
    features = np.random.default_rng(seed).integers(0, 8, size=(rows, 3)).astype(float)
    label = (features[:, 0] + features[:, 1] > features[:, 2] + 4).astype(float)
    return pd.DataFrame(features, columns=["a", "b", "c"]).assign(y=label)


def dataset(rows: pd.DataFrame) -> lightgbm.Dataset:
    return lightgbm.Dataset(rows.drop(columns="y"), rows["y"])


def plain(rounds: int) -> list[float]:
    """The losses of the same training in one process, without holdfast."""
    found: dict[str, Any] = {}
    whole = dataset(frame())
    record = lightgbm.record_evaluation(found)
    lightgbm.train(
        PARAMS, whole, rounds, valid_sets=[whole], valid_names=["all"], callbacks=[record]
    )
    losses: list[float] = found["all"]["binary_logloss"]
    return losses


def trainer(tmp_path: Path, loop: Any = None, **more: Any) -> LightGBMTrainer:
    run = {"storage_path": str(tmp_path / "results"), "name": "run", "verbose": 0}
    scaling = {"num_workers": more.pop("workers", 2), "resources_per_worker": {"CPU": 0.1}}
    if loop is None:
        datasets = {"train": frame(), "all": frame()}
        given = {"label_column": "y", "params": PARAMS, "datasets": datasets}
        more = {**given, **more}
    return LightGBMTrainer(
        loop,
        scaling_config=train.ScalingConfig(**scaling),
        run_config=train.RunConfig(**{**run, **more.pop("run", {})}),
        **more,
    )


def rows(result: train.Result, name: str = "all-binary_logloss") -> list[float]:
    found = list(result.rows())
    assert [row["training_iteration"] for row in found] == list(range(1, len(found) + 1))
    return [row[name] for row in found]


@pytest.mark.smoke
def test_killed_controller_and_killed_rank_cost_no_round_and_change_no_number(
    bench: Bench,
) -> None:
    bench.environ["HOLDFAST_TEST_DIES"] = "2 4 1"
    gate = bench.gate("round-3")
    script = bench.start(epochs=5)
    script.wait_for("at 3")
    script.kill()
    assert script.left() == []
    gate.open()
    after = bench.restore(epochs=5).succeeds()
    assert after.left() == []
    began = [(note["attempt"], note["round"]) for note in bench.notes()]
    assert began == [(1, 1), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5)]
    (result,) = results(after)
    assert result["rounds"] == 5
    assert result["losses"] == pytest.approx(plain(5), rel=1e-4)
    assert bench.problems() == []


# -- without a loop -------------------------------------------------------------------------------


def dying(predictions: Any, evaluated: lightgbm.Dataset) -> tuple[str, float, bool]:
    """A metric of the user's, in which the second rank dies once."""
    context = train.get_context()
    lived = os.path.join(context.get_trial_dir(), f"{context.get_attempt()}-{os.getpid()}")
    with open(lived, "a") as rounds:
        rounds.write("x")
    if (context.get_attempt(), context.get_world_rank()) == (1, 1) and os.path.getsize(lived) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return "mine", float(len(predictions)), True


def test_without_a_loop_a_killed_rank_goes_on_from_the_newest_saved_round(tmp_path: Path) -> None:
    run = {
        "failure_config": train.FailureConfig(max_failures=1),
        "checkpoint_config": train.CheckpointConfig(checkpoint_frequency=2),
    }
    result = trainer(tmp_path, num_boost_round=5, feval=dying, run=run).fit()
    assert rows(result) == pytest.approx(plain(5), rel=1e-4)
    saved = [row.get("checkpoint_dir_name") for row in result.rows()]
    assert saved == [None, "checkpoint_000000", None, "checkpoint_000001", "checkpoint_000002"]
    second = [path.stat().st_size for path in Path(result.path).glob("2-*")]
    assert second == [6, 6]  # three rounds, over two datasets, in each rank
    assert result.checkpoint
    assert LightGBMTrainer.get_model(result.checkpoint).current_iteration() == 5


def test_what_was_trained_to_the_end_is_not_trained_again(tmp_path: Path) -> None:
    def further(rounds: int, name: str, begun: train.Checkpoint | None) -> train.Result:
        run = {"name": name}
        more = {"num_boost_round": rounds, "resume_from_checkpoint": begun, "run": run}
        return trainer(tmp_path, workers=1, **more).fit()

    first = further(2, "first", None)
    more = further(3, "more", first.checkpoint)
    assert rows(more) == pytest.approx(plain(3)[2:], rel=1e-4)
    assert list(further(3, "done", more.checkpoint).rows()) == []


def test_an_early_stop_saves_its_best_round(tmp_path: Path) -> None:
    valid = frame(40, seed=1).assign(y=0.0)
    result = trainer(
        tmp_path,
        datasets={"train": frame(), "valid": valid},
        params={**PARAMS, "early_stopping_round": 2},
        num_boost_round=50,
    ).fit()
    losses = rows(result, "valid-binary_logloss")
    assert len(losses) < 50
    assert result.checkpoint
    best = losses.index(min(losses)) + 1
    assert LightGBMTrainer.get_model(result.checkpoint).current_iteration() == best


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"label_column": "z"}, "label_column='z' is no column of the dataset 'train': 'a', 'b'"),
        ({"datasets": {"train": frame(1)}}, "rank 1 of 2 has no row of the dataset 'train'"),
    ],
)
def test_data_that_cannot_be_learned_is_told_by_name(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(train.TrainingFailedError, match=told):
        trainer(tmp_path, **given).fit()


def test_what_cannot_be_trained_without_a_loop_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"LightGBMTrainer\(valid=\.\.\.\): it takes besides"):
        trainer(tmp_path, valid=3)
    with pytest.raises(InvalidConfig, match=r"num_boost_round=\.\.\.\) is for a training without"):
        LightGBMTrainer(lambda: None, num_boost_round=3)


def test_ten_groups_at_once_each_meet_at_ports_of_their_own(tmp_path: Path) -> None:
    grid = tune.Tuner(
        trainer(tmp_path, num_boost_round=2),
        param_space={"train_loop_config": {"seed": tune.grid_search(list(range(10)))}},
    ).fit()
    assert [str(error) for error in grid.errors] == []
    assert len([rows(result) for result in grid]) == 10


# -- in trials ------------------------------------------------------------------------------------


def boosted(config: dict[str, Any]) -> None:
    """A trial, which dies once in its fourth round."""
    assert get_network_params() == {}
    begun = tune.get_checkpoint()
    model = TuneReportCheckpointCallback.get_model(begun, "booster.txt") if begun else None
    done = model.current_iteration() if model else 0

    def dying(env: Any) -> None:
        if (tune.get_context().get_attempt(), env.iteration) == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)

    dying.before_iteration = True  # type: ignore[attr-defined]
    report = TuneReportCheckpointCallback(
        {"loss": "all-binary_logloss"}, filename="booster.txt", frequency=2
    )
    whole = dataset(frame())
    lightgbm.train(
        {**PARAMS, "learning_rate": config["eta"]},
        whole,
        5 - done,
        valid_sets=[whole],
        valid_names=["all"],
        init_model=model,
        callbacks=[report, dying],
    )


def test_trials_are_killed_and_go_on_and_the_best_one_has_its_model(tmp_path: Path) -> None:
    grid = tune.Tuner(
        boosted,
        param_space={"eta": tune.grid_search([0.5, 0.05])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path),
            failure_config=tune.FailureConfig(max_failures=1),
            verbose=0,
        ),
    ).fit()
    assert [str(error) for error in grid.errors] == []
    best = grid.get_best_result()
    assert best.config is not None
    assert best.config["eta"] == 0.5
    assert rows(best, "loss") == pytest.approx(plain(5), rel=1e-4)
    assert best.checkpoint
    model = TuneReportCheckpointCallback.get_model(best.checkpoint, "booster.txt")
    assert model.current_iteration() == 5


def validated(config: dict[str, Any]) -> None:
    report = TuneReportCallback(["valid-binary_logloss-mean"])
    lightgbm.cv(PARAMS, dataset(frame()), 3, nfold=2, stratified=False, callbacks=[report])
    whole = dataset(frame())
    watched = {"valid_sets": [whole], "valid_names": ["all"]}
    with pytest.raises(tune.TuneError, match="no 'loss' to report; what there is: 'all-binary"):
        lightgbm.train(PARAMS, whole, 1, **watched, callbacks=[TuneReportCallback("loss")])


def test_cross_validation_is_reported_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(validated, run_config=run).fit()
    assert result.error is None
    assert len(rows(result, "valid-binary_logloss-mean")) == 3


def counting(config: dict[str, Any]) -> None:
    """How many threads of this process compute."""
    before = len(os.listdir("/proc/self/task"))
    features = np.random.default_rng(0).normal(size=(20_000, 20))
    lightgbm.train(PARAMS, lightgbm.Dataset(features, (features[:, 0] > 0).astype(float)), 2)
    tune.report({"threads": 1 + len(os.listdir("/proc/self/task")) - before})


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_trial_computes_on_as_many_threads_as_it_has_cpus(tmp_path: Path, cpus: int) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    trial = tune.with_resources(counting, {"CPU": cpus})
    (result,) = tune.Tuner(trial, run_config=run).fit()
    assert result.metrics is not None
    assert result.metrics["threads"] == min(cpus, os.cpu_count() or 1)


def test_the_name_of_the_seeds_is_an_alias() -> None:
    assert RayTrainReportCallback is TrainReportCallback
    assert TrainReportCallback.CHECKPOINT_NAME == "model.txt"
