"""LightGBM on several ranks and in trials: real trainings, killed and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightgbm
import pandas as pd
import pytest

from holdfast import tune
from holdfast.train.lightgbm import (
    LightGBMCheckpoint,
    LightGBMTrainer,
    RayTrainReportCallback,
    TrainReportCallback,
    get_network_params,
)
from holdfast.tune.integration.lightgbm import TuneReportCallback, TuneReportCheckpointCallback
from tests.frameworks.boosting import Boosted, Library, frame, values

pytestmark = pytest.mark.process

PARAMS = {
    "objective": "binary",
    "num_leaves": 4,
    "learning_rate": 0.5,
    "min_data_in_bin": 1,
    "min_data_in_leaf": 5,
    "verbosity": -1,
}


def dataset(rows: pd.DataFrame) -> lightgbm.Dataset:
    return lightgbm.Dataset(rows.drop(columns="y"), rows["y"])


def learn(
    params: dict[str, Any],
    rows: pd.DataFrame,
    rounds: int,
    model: Any = None,
    callbacks: Sequence[Any] = (),
) -> None:
    whole = dataset(rows)
    told = {"valid_sets": [whole], "valid_names": ["all"], "callbacks": list(callbacks)}
    lightgbm.train(params, whole, rounds, init_model=model, **told)


def losses(rounds: int) -> list[float]:
    found: dict[str, Any] = {}
    learn(PARAMS, frame(), rounds, callbacks=[lightgbm.record_evaluation(found)])
    logloss: list[float] = found["all"]["binary_logloss"]
    return logloss


def before(told: Callable[[int], None]) -> Any:
    def tell(env: Any) -> None:
        told(env.iteration)

    tell.before_iteration = True  # type: ignore[attr-defined]
    return tell


class TestLightGBM(Boosted):
    library = Library(
        example="lightgbm_rounds.py",
        trainer=LightGBMTrainer,
        callback=TrainReportCallback,
        tune_callback=TuneReportCallback,
        tune_checkpoint_callback=TuneReportCheckpointCallback,
        filename="model.txt",
        params=PARAMS,
        rate="learning_rate",
        loss="all-binary_logloss",
        metric="feval",
        counted=lambda count: ("mine", float(count), True),
        early_stop={"params": {"early_stopping_round": 2}},
        rounds_of=lambda model: model.current_iteration(),
        learn=learn,
        before=before,
        losses=losses,
    )

    def stopped(self, losses: Sequence[float], saved: int) -> None:
        assert saved == losses.index(min(losses)) + 1


def validated(config: dict[str, Any]) -> None:
    assert get_network_params() == {}
    report = TuneReportCallback(["valid-binary_logloss-mean"])
    lightgbm.cv(PARAMS, dataset(frame()), 3, nfold=2, stratified=False, callbacks=[report])


def test_cross_validation_is_reported(tmp_path: Path) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(validated, run_config=run).fit()
    assert result.error is None
    assert len(values(result, "valid-binary_logloss-mean")) == 3


def test_the_name_of_the_seeds_is_an_alias() -> None:
    assert RayTrainReportCallback is TrainReportCallback


def test_a_model_goes_through_a_checkpoint_of_its_own() -> None:
    rows = frame()
    model = lightgbm.train(PARAMS, dataset(rows), 3)
    made = LightGBMCheckpoint.from_model(model)
    same = LightGBMCheckpoint(made.path).get_model()
    features = rows.drop(columns="y")
    assert list(same.predict(features)) == list(model.predict(features))
    path = Path(made.path)
    assert (path / LightGBMCheckpoint.MODEL_FILENAME).exists()
    del made
    assert not path.exists()
