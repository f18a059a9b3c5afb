"""XGBoost on several ranks and in trials: real trainings, killed and resumed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import xgboost

from holdfast import tune
from holdfast.train.xgboost import (
    RayTrainReportCallback,
    TrainReportCallback,
    XGBoostCheckpoint,
    XGBoostConfig,
    XGBoostTrainer,
)
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.integration.xgboost import TuneReportCallback, TuneReportCheckpointCallback
from tests.frameworks.boosting import Boosted, Library, frame, values

pytestmark = pytest.mark.process

PARAMS = {"objective": "binary:logistic", "max_depth": 2, "eta": 0.5}


def matrix(rows: pd.DataFrame) -> xgboost.DMatrix:
    return xgboost.DMatrix(rows.drop(columns="y"), rows["y"])


def learn(
    params: dict[str, Any],
    rows: pd.DataFrame,
    rounds: int,
    model: Any = None,
    callbacks: Sequence[Any] = (),
    **more: Any,
) -> None:
    whole = matrix(rows)
    told = {"evals": [(whole, "all")], "verbose_eval": False, "callbacks": list(callbacks)}
    xgboost.train(params, whole, rounds, xgb_model=model, **told, **more)


def losses(rounds: int) -> list[float]:
    found: dict[str, Any] = {}
    learn(PARAMS, frame(), rounds, evals_result=found)
    logloss: list[float] = found["all"]["logloss"]
    return logloss


def before(told: Callable[[int], None]) -> Any:
    class Before(xgboost.callback.TrainingCallback):
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            told(model.num_boosted_rounds())
            return False

    return Before()


class TestXGBoost(Boosted):
    library = Library(
        example="xgboost_rounds.py",
        trainer=XGBoostTrainer,
        callback=TrainReportCallback,
        tune_callback=TuneReportCallback,
        tune_checkpoint_callback=TuneReportCheckpointCallback,
        filename="model.ubj",
        params=PARAMS,
        rate="eta",
        loss="all-logloss",
        metric="custom_metric",
        counted=lambda count: ("mine", float(count)),
        early_stop={"early_stopping_rounds": 2},
        rounds_of=lambda model: model.num_boosted_rounds(),
        learn=learn,
        before=before,
        losses=losses,
    )

    def stopped(self, losses: Sequence[float], saved: int) -> None:
        assert losses[-1] > losses[-3]
        assert saved == len(losses)


def validated(config: dict[str, Any]) -> None:
    def of_all(found: dict[str, Any]) -> dict[str, float]:
        return {name: mean for name, (mean, _) in found.items()}

    report = TuneReportCallback("test-logloss", results_postprocessing_fn=of_all)
    xgboost.cv(PARAMS, matrix(frame()), 3, nfold=2, callbacks=[report])
    saving = partial(TuneReportCheckpointCallback, results_postprocessing_fn=of_all)
    xgboost.cv(PARAMS, matrix(frame()), 2, nfold=2, callbacks=[saving()])
    with pytest.raises(InvalidConfig, match=r"xgboost\.cv trains a model for each fold"):
        xgboost.cv(PARAMS, matrix(frame()), 2, nfold=2, callbacks=[saving(frequency=1)])


def test_cross_validation_is_reported_and_has_no_model_to_save(tmp_path: Path) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(validated, run_config=run).fit()
    assert result.error is None
    assert len(values(result, "test-logloss")) == 3 + 2
    assert result.checkpoint is None


def test_settings_that_mean_nothing_are_refused() -> None:
    assert RayTrainReportCallback is TrainReportCallback
    with pytest.raises(InvalidConfig, match=re.escape("there is 'rabit'")):
        XGBoostConfig("federated")
    with pytest.raises(InvalidConfig, match="frequency=-1 must be a number of rounds"):
        TrainReportCallback(frequency=-1)
    with pytest.raises(InvalidConfig, match="must be a name, a list of names, or a dict"):
        TrainReportCallback([1])  # type: ignore[list-item]


def test_a_model_goes_through_a_checkpoint_of_its_own() -> None:
    rows = frame()
    model = xgboost.train(PARAMS, matrix(rows), 3)
    made = XGBoostCheckpoint.from_model(model)
    same = XGBoostCheckpoint(made.path).get_model()
    assert same.num_boosted_rounds() == 3
    assert list(same.predict(matrix(rows))) == list(model.predict(matrix(rows)))
    path = Path(made.path)
    assert (path / XGBoostCheckpoint.MODEL_FILENAME).exists()
    del made
    assert not path.exists()
