"""People who come from Optuna: what their scripts do, done with its library here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna import samplers

from holdfast import tune
from holdfast.tune.search import OptunaSearch

SPACE = {"x": tune.uniform(0, 1)}


def run(
    train: Any, tmp_path: Path, name: str = "run", mode: str = "min", **of_search: Any
) -> tune.ResultGrid:
    goal: dict[str, Any] = {"metric": "loss", "mode": mode}
    return tune.Tuner(
        train,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            num_samples=12,
            max_concurrent_trials=1,
            search_alg=OptunaSearch(**of_search),
            **goal,
        ),
        run_config=tune.RunConfig(name=name, storage_path=str(tmp_path), verbose=0),
    ).fit(resume="auto")


def x_of(result: tune.Result) -> float:
    return float((result.config or {})["x"])


def states(url: str, study: str) -> set[str]:
    return {one.state.name for one in optuna.load_study(study_name=study, storage=url).trials}


def test_a_function_that_reports_and_returns_its_value_is_complete(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> float:
        for _ in range(2):
            tune.report({"loss": config["x"]})
        return float(config["x"])

    url = f"sqlite:///{tmp_path}/study.db"
    results = run(train, tmp_path, seed=1, storage=url, study_name="s")
    assert states(url, "s") == {"COMPLETE"}
    best = results.best.metrics or {}
    assert (best["training_iteration"], best["loss"]) == (2, min(map(x_of, results)))


def test_a_trial_that_is_pruned_before_its_first_report_is_pruned(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        if config["x"] > 0.5:
            raise optuna.TrialPruned
        return {"loss": config["x"]}

    url = f"sqlite:///{tmp_path}/study.db"
    results = run(train, tmp_path, seed=1, storage=url, study_name="live")
    results.to_optuna(url, "export")
    assert states(url, "live") == states(url, "export") == {"COMPLETE", "PRUNED"}


def by_params(trial: Any) -> tuple[float, ...]:
    return (trial.params["x"] - 0.5,)


def by_report(trial: Any) -> tuple[float, ...]:
    return (trial.user_attrs["size"] - 0.5,)


@pytest.mark.filterwarnings("ignore:.*constraints_func.*")
@pytest.mark.parametrize("constraint", [by_params, by_report])
@pytest.mark.parametrize("is_stored", [False, True])
def test_the_best_trial_keeps_to_the_constraints(
    constraint: Any, tmp_path: Path, is_stored: bool
) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": -config["x"], "size": config["x"]}

    stored = {"storage": f"sqlite:///{tmp_path}/study.db", "study_name": "s"}
    sampler = samplers.TPESampler(seed=1, constraints_func=constraint)
    results = run(train, tmp_path, sampler=sampler, **(stored if is_stored else {}))
    values = list(map(x_of, results))
    assert max(values) > 0.5
    best = max(value for value in values if value <= 0.5)
    assert x_of(results.best) == best
    assert x_of(tune.load(results.experiment_path).best) == best
