"""`AutoSearch(warm_start=...)`: what a search takes from earlier runs."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.results.reading import ExperimentNotFound
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search import AutoSearch
from tests.frameworks.searches import EXAMPLES, killed_and_whole, opened, ran, suggested

PLANE = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}
CURVE = {
    "lr": tune.loguniform(1e-3, 3),
    "momentum": tune.uniform(0, 0.99),
    "features": tune.randint(2, 40),
}
"""That of the examples."""


def far(config: dict[str, Any]) -> float:
    return float((config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2)


def train(config: dict[str, Any]) -> None:
    if config.get("y", 1.0) < 0.2:
        raise ValueError("too low")
    tune.report({"loss": far({"y": 0.5, **config}), "data": {"accuracy": config["x"]}})


def lossless(config: dict[str, Any]) -> None:
    tune.report({"loss": 0.0})


def fitted(folder: Path, name: str, search: Any = None, count: int = 8, **more: Any) -> Any:
    tuner = tune.Tuner(
        more.pop("train", train),
        param_space=more.pop("space", PLANE),
        tune_config=tune.TuneConfig(
            **{"metric": "loss", "mode": "min", **more},
            search_alg=search or AutoSearch(seed=4),
            num_samples=count,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(storage_path=str(folder), name=name, verbose=0),
    )
    return tuner.fit()


def noisy(config: dict[str, Any]) -> None:
    is_luck = config["x"] == 2 and config["seed"] == 7
    tune.report({"loss": -1.0 if is_luck else config["x"]})


def configs(results: Any) -> list[dict[str, Any]]:
    return [one.config for one in results]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two earlier runs, the second one with a parameter that is fixed, and was not before."""
    folder = tmp_path_factory.mktemp("earlier")
    return [
        fitted(folder, "one"),
        fitted(folder, "two", AutoSearch(seed=5), space={**PLANE, "seed": 3}),
    ]


def best(results: Any, number: int = 0) -> dict[str, Any]:
    """The best config, or the one after so many better ones."""
    whole = [one.config for one in results if one.error is None]
    config = sorted(whole, key=far)[number]
    return {"x": config["x"], "y": config["y"]}


def test_the_best_configs_of_each_earlier_run_come_first(earlier: Any) -> None:
    one, two = earlier
    search = AutoSearch(warm_start=[one.experiment_path, tune.load(two.experiment_path)])
    found = ran(opened(search, PLANE), 12, far)
    assert found[:4] == [best(one), best(two), best(one, 1), best(two, 1)]
    assert len({(config["x"], config["y"]) for config in found}) == 12
    assert min(map(far, found)) < far(best(one))


def test_points_of_the_user_come_before_those_of_earlier_runs(earlier: Any) -> None:
    mine = {"x": 0.5, "y": 0.5}
    search = AutoSearch(points_to_evaluate=[mine, best(earlier[0])], warm_start=earlier)
    found = ran(opened(search, PLANE), 3, far)
    assert found == [mine, best(earlier[0]), best(earlier[1])]


def test_a_search_that_is_stored_needs_no_earlier_results(earlier: Any) -> None:
    search = AutoSearch(warm_start=earlier, seed=1)
    stored = pickle.loads(pickle.dumps(search))
    assert ran(opened(stored, PLANE), 12, far) == ran(opened(search, PLANE), 12, far)


def test_a_run_goes_on_as_if_it_had_not_ended_when_the_earlier_ones_are_gone(
    tmp_path: Path,
) -> None:
    before = fitted(tmp_path, "before")
    whole = fitted(tmp_path, "whole", AutoSearch(seed=1, warm_start=[before]), count=10)
    path = before.experiment_path
    fitted(tmp_path, "part", AutoSearch(seed=1, warm_start=[path]), count=5)
    shutil.rmtree(path)
    part = tmp_path / "part"
    after = tune.Tuner.restore(str(part), train, num_samples=10, extend=True).fit()
    assert configs(after)[0] == before.best.config
    assert configs(after) == configs(whole)


SCRIPT = """
import sys
sys.path.insert(0, {examples!r})
from shared import curve
from holdfast.tune.search import AutoSearch
curve.main("", lambda: AutoSearch(seed=1, warm_start=[{earlier!r}]), max_concurrent_trials=1)
"""


@pytest.mark.process
def test_a_run_that_is_killed_makes_the_choices_that_it_would_have_made(tmp_path: Path) -> None:
    one = {"lr": 0.1, "momentum": 0.5, "features": 9}
    given = AutoSearch(points_to_evaluate=[one])
    before = fitted(tmp_path, "before", given, 1, train=lossless, space=CURVE)
    script = SCRIPT.format(examples=str(EXAMPLES), earlier=before.experiment_path)
    (tmp_path / "warm.py").write_text(script)
    after, whole = killed_and_whole(str(tmp_path / "warm"), tmp_path / "bench", samples=6)
    assert after == whole
    assert after[0] == one
    assert len(after) == 6


def test_configs_that_the_space_does_not_have_are_left_out(earlier: Any) -> None:
    narrow = {"x": tune.uniform(0, 1), "y": tune.uniform(0.0, best(earlier[0])["y"] - 0.01)}
    fit = [one for one in configs(earlier[0]) if one["y"] < best(earlier[0])["y"] - 0.01]
    search = AutoSearch(warm_start=earlier[:1])
    first = ran(opened(search, narrow), 1, far)[0]
    assert first == min((one for one in fit if one["y"] >= 0.2), key=far)
    other = {"x": tune.uniform(0, 1), "z": tune.uniform(0, 1)}
    assert "z" in ran(opened(AutoSearch(warm_start=earlier), other), 1, lambda one: one["z"])[0]


def test_the_plan_says_how_much_it_takes(earlier: Any) -> None:
    whole = [one for run in earlier for one in run if one.error is None]
    plan = AutoSearch(warm_start=earlier, metric="loss", mode="min").plan(PLANE)
    assert f"begins with the best of {len(whole)} trials of 2 earlier runs" in plan.told
    other = AutoSearch(warm_start=earlier).plan({"z": tune.uniform(0, 1)})
    assert "begins with the best of 0 trials of 2 earlier runs" in other.told


def test_another_goal_is_refused_by_the_name_of_the_run(earlier: Any) -> None:
    name = "earlier run 'one'"
    with pytest.raises(InvalidConfig, match=rf"{name} .*'loss', min, .*'loss', max"):
        opened(AutoSearch(warm_start=earlier), PLANE, "max")
    with pytest.raises(InvalidConfig, match=rf"{name} has mode='min' for 'loss'"):
        AutoSearch(metric="loss", mode="max", warm_start=earlier)
    with pytest.raises(InvalidConfig, match=rf"{name} has reported 'accuracy'"):
        AutoSearch(metric="accuracy", mode="max", warm_start=earlier)
    with pytest.raises(InvalidConfig, match="one metric"):
        AutoSearch(metric=["loss", "size"], mode=["min", "min"], warm_start=earlier)


def test_another_metric_of_the_earlier_rows_may_be_the_goal(earlier: Any) -> None:
    search = AutoSearch(metric="data/accuracy", mode="max", warm_start=earlier[:1])
    whole = [one for one in earlier[0] if one.error is None]
    first = suggested(opened(search, PLANE), 0)
    assert first == max((one.config for one in whole), key=lambda config: config["x"])


def test_what_is_no_earlier_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="must be a list"):
        AutoSearch(warm_start=str(tmp_path))
    with pytest.raises(ExperimentNotFound):
        AutoSearch(warm_start=[str(tmp_path)])
    with pytest.raises(InvalidConfig, match="must be text, not 3"):
        AutoSearch(warm_start=[3])


def test_configs_that_fresh_runs_have_confirmed_come_first_and_fresh_runs_are_none(
    tmp_path: Path,
) -> None:
    space = {"x": tune.grid_search([1, 2, 3, 4]), "seed": 7}
    earlier = tune.Tuner(
        noisy,
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss", mode="min", confirm=2),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="noisy", verbose=0),
    ).fit()
    search = AutoSearch(metric="loss", mode="min", warm_start=[earlier])
    found = ran(opened(search, {"x": tune.randint(0, 10), "seed": 7}), 4, lambda config: 0.0)
    assert [config["x"] for config in found] == [1, 2, 3, 4]
    assert "the best of 4 trials" in search.plan({"x": tune.randint(0, 10), "seed": 7}).told
