"""XGBoost on several ranks and in trials: real trainings, killed and gone on with."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

from holdfast import data, train, tune
from holdfast.testing.bench import Bench, results
from holdfast.train.xgboost import (
    RayTrainReportCallback,
    TrainReportCallback,
    XGBoostConfig,
    XGBoostTrainer,
)
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.integration.xgboost import TuneReportCallback, TuneReportCheckpointCallback

pytestmark = pytest.mark.process

PARAMS = {"objective": "binary:logistic", "max_depth": 2, "eta": 0.5}


def frame(rows: int = 160, seed: int = 0) -> pd.DataFrame:
    """Few values, so that several ranks find the same bounds between them as one does."""
    features = np.random.default_rng(seed).integers(0, 8, size=(rows, 3)).astype(float)
    label = (features[:, 0] + features[:, 1] > features[:, 2] + 4).astype(float)
    return pd.DataFrame(features, columns=["a", "b", "c"]).assign(y=label)


def matrix(rows: pd.DataFrame) -> xgboost.DMatrix:
    return xgboost.DMatrix(rows.drop(columns="y"), rows["y"])


def plain(rounds: int) -> list[float]:
    """The losses of the same training in one process, without holdfast."""
    found: dict[str, Any] = {}
    whole = matrix(frame())
    xgboost.train(
        PARAMS, whole, rounds, evals=[(whole, "train")], evals_result=found, verbose_eval=False
    )
    losses: list[float] = found["train"]["logloss"]
    return losses


def trainer(tmp_path: Path, loop: Any = None, **more: Any) -> XGBoostTrainer:
    run = {"storage_path": str(tmp_path / "results"), "name": "run", "verbose": 0}
    scaling = {"num_workers": more.pop("workers", 2), "resources_per_worker": {"CPU": 0.1}}
    if loop is None:
        given = {"label_column": "y", "params": PARAMS, "datasets": {"train": frame()}}
        more = {**given, **more}
    return XGBoostTrainer(
        loop,
        scaling_config=train.ScalingConfig(**scaling),
        run_config=train.RunConfig(**{**run, **more.pop("run", {})}),
        **more,
    )


def rows(result: train.Result, name: str = "train-logloss") -> list[float]:
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


def dying(predictions: Any, evaluated: xgboost.DMatrix) -> tuple[str, float]:
    """A metric of the user's, in which the second rank dies once."""
    context = train.get_context()
    lived = os.path.join(context.get_trial_dir(), f"{context.get_attempt()}-{os.getpid()}")
    with open(lived, "a") as rounds:
        rounds.write("x")
    if (context.get_attempt(), context.get_world_rank()) == (1, 1) and os.path.getsize(lived) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return "mine", float(len(predictions))


def test_without_a_loop_a_killed_rank_goes_on_from_the_newest_saved_round(tmp_path: Path) -> None:
    run = {
        "failure_config": train.FailureConfig(max_failures=1),
        "checkpoint_config": train.CheckpointConfig(checkpoint_frequency=2),
    }
    result = trainer(tmp_path, num_boost_round=5, custom_metric=dying, run=run).fit()
    assert rows(result) == pytest.approx(plain(5), rel=1e-4)
    saved = [row.get("checkpoint_dir_name") for row in result.rows()]
    assert saved == [None, "checkpoint_000000", None, "checkpoint_000001", "checkpoint_000002"]
    attempts = sorted(
        (path.name[0], path.stat().st_size) for path in Path(result.path).glob("?-*")
    )
    assert attempts == [("1", 4), ("1", 4), ("2", 3), ("2", 3)]
    assert result.checkpoint
    assert XGBoostTrainer.get_model(result.checkpoint).num_boosted_rounds() == 5


def test_what_was_trained_to_the_end_is_not_trained_again(tmp_path: Path) -> None:
    first = trainer(tmp_path, num_boost_round=2, workers=1).fit()
    more = trainer(
        tmp_path,
        num_boost_round=3,
        workers=1,
        resume_from_checkpoint=first.checkpoint,
        run={"name": "more"},
    ).fit()
    assert rows(more) == pytest.approx(plain(3)[2:], rel=1e-4)
    done = trainer(
        tmp_path,
        num_boost_round=3,
        workers=1,
        resume_from_checkpoint=more.checkpoint,
        run={"name": "done"},
    ).fit()
    assert list(done.rows()) == []


def test_a_dataset_of_holdfast_data_is_shared_out_among_the_ranks(tmp_path: Path) -> None:
    datasets = {"train": data.from_pandas(frame())}
    result = trainer(tmp_path, datasets=datasets, num_boost_round=3).fit()
    assert rows(result) == pytest.approx(plain(3), rel=1e-4)


def test_an_early_stop_saves_its_last_round_and_other_datasets_are_evaluated(
    tmp_path: Path,
) -> None:
    result = trainer(
        tmp_path,
        datasets={"train": frame(), "valid": frame(40, seed=1).assign(y=0.0)},
        num_boost_round=50,
        early_stopping_rounds=2,
    ).fit()
    losses = rows(result, "valid-logloss")
    assert len(losses) < 50
    assert losses[-1] > losses[-3]
    assert result.checkpoint
    assert XGBoostTrainer.get_model(result.checkpoint).num_boosted_rounds() == len(losses)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"params": None}, "needs train_loop_per_worker, or label_column, params and"),
        ({"datasets": {"valid": []}}, r"learns from datasets\['train'\]"),
        ({"num_rounds": 3}, r"XGBoostTrainer\(num_rounds=\.\.\.\): it takes besides"),
        ({"loop": print}, r"label_column=\.\.\.\) is for a training without"),
    ],
)
def test_what_cannot_be_trained_without_a_loop_is_refused(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    if given.pop("loop", None):
        with pytest.raises(InvalidConfig, match=told):
            XGBoostTrainer(lambda: None, label_column="y")
        return
    with pytest.raises(InvalidConfig, match=told):
        trainer(tmp_path, **given)


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


# -- in trials ------------------------------------------------------------------------------------


def boosted(config: dict[str, Any]) -> None:
    """A trial, which dies once in its fourth round."""
    begun = tune.get_checkpoint()
    model = TuneReportCheckpointCallback.get_model(begun, "booster.json") if begun else None
    done = model.num_boosted_rounds() if model else 0

    class Dying(xgboost.callback.TrainingCallback):
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if (tune.get_context().get_attempt(), done + epoch) == (1, 3):
                os.kill(os.getpid(), signal.SIGKILL)
            return False

    whole = matrix(frame())
    report = TuneReportCheckpointCallback(
        {"loss": "train-logloss"}, filename="booster.json", frequency=2
    )
    xgboost.train(
        {**PARAMS, "eta": config["eta"]},
        whole,
        5 - done,
        evals=[(whole, "train")],
        xgb_model=model,
        verbose_eval=False,
        callbacks=[report, Dying()],
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
    model = TuneReportCheckpointCallback.get_model(best.checkpoint, "booster.json")
    assert model.num_boosted_rounds() == 5


def validated(config: dict[str, Any]) -> None:
    def of_all(found: dict[str, Any]) -> dict[str, float]:
        return {name: mean for name, (mean, _) in found.items()}

    report = TuneReportCallback("test-logloss", results_postprocessing_fn=of_all)
    xgboost.cv(PARAMS, matrix(frame()), 3, nfold=2, callbacks=[report])
    whole = matrix(frame())
    with pytest.raises(InvalidConfig, match=r"xgboost\.cv trains a model for each fold"):
        xgboost.cv(PARAMS, whole, 1, nfold=2, callbacks=[TuneReportCheckpointCallback()])
    watched = {"evals": [(whole, "train")], "verbose_eval": False}
    with pytest.raises(tune.TuneError, match="no 'loss' to report; what there is: 'train-log"):
        xgboost.train(PARAMS, whole, 1, **watched, callbacks=[TuneReportCallback(["loss"])])


def test_cross_validation_is_reported_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(validated, run_config=run).fit()
    assert result.error is None
    assert len(rows(result, "test-logloss")) == 3


def counting(config: dict[str, Any]) -> None:
    """How many threads of this process compute."""
    before = len(os.listdir("/proc/self/task"))
    features = np.random.default_rng(0).normal(size=(20_000, 20))
    xgboost.train(PARAMS, xgboost.DMatrix(features, features[:, 0] > 0), 2)
    tune.report({"threads": 1 + len(os.listdir("/proc/self/task")) - before})


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_trial_computes_on_as_many_threads_as_it_has_cpus(tmp_path: Path, cpus: int) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    trial = tune.with_resources(counting, {"CPU": cpus})
    (result,) = tune.Tuner(trial, run_config=run).fit()
    assert result.metrics is not None
    assert result.metrics["threads"] == min(cpus, os.cpu_count() or 1)


def test_ten_groups_at_once_each_have_a_tracker_of_their_own(tmp_path: Path) -> None:
    grid = tune.Tuner(
        trainer(tmp_path, num_boost_round=2),
        param_space={"train_loop_config": {"seed": tune.grid_search(list(range(10)))}},
    ).fit()
    assert [str(error) for error in grid.errors] == []
    assert len([rows(result) for result in grid]) == 10


# -- without workers ------------------------------------------------------------------------------


def test_the_name_of_the_seeds_is_an_alias() -> None:
    assert RayTrainReportCallback is TrainReportCallback
    assert TrainReportCallback.CHECKPOINT_NAME == "model.ubj"


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=re.escape("there is 'rabit'")):
        XGBoostConfig("federated")
    with pytest.raises(InvalidConfig, match="frequency=-1 must be a number of rounds"):
        TrainReportCallback(frequency=-1)
    with pytest.raises(InvalidConfig, match="must be a name, a list of names, or a dict"):
        TrainReportCallback([1])  # type: ignore[list-item]
