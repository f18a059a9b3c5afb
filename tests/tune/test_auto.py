"""`AutoSearch`: the contract of searches, its model, and what only it does."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import pytest

from holdfast import tune
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.simulate import simulate
from holdfast.tune.search import AutoSearch
from holdfast.tune.search.gaussian_process import (
    NOISY,
    SMOOTH,
    GaussianProcess,
    log_expected_improvement,
)
from tests.frameworks.searches import (
    SearchContract,
    ended,
    killed_and_whole,
    opened,
    ran,
    suggested,
)

AXES = [(0,), (1,), (2,)]
PLANE = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}


class TestAuto(SearchContract):
    count: ClassVar[int] = 30
    part: ClassVar[float] = 0.03

    @classmethod
    def made(cls, **given: Any) -> AutoSearch:
        return AutoSearch(**given)


def far(config: dict[str, Any]) -> float:
    return float((config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2)


def data(count: int) -> tuple[Any, Any]:
    points = np.random.default_rng(3).random((count, 3))
    return points, np.sin(5 * points[:, 0]) + points[:, 1]


def test_a_process_knows_the_values_at_its_points_and_little_far_from_them() -> None:
    points, values = data(40)
    kernel = SMOOTH.kernel(AXES).fit(points, values, steps=40)
    process = GaussianProcess(kernel, points, values)
    there, sure = process.predict(points)
    _, unsure = process.predict(points + 5.0)
    assert np.abs(there - values).max() < 0.1
    assert sure.max() < unsure.min()


def test_a_fit_finds_which_axes_matter() -> None:
    points, values = data(60)
    scales = SMOOTH.kernel(AXES).fit(points, values, steps=60).scales
    assert scales[2] > max(scales[:2])
    assert scales[0] < scales[1]


def test_the_values_tell_whether_they_have_noise() -> None:
    points, values = data(60)
    noise = np.random.default_rng(4).normal(size=60)

    def likelier(values: Any) -> Any:
        standardized = (values - values.mean()) / values.std()
        fitted = [one.kernel(AXES).fit(points, standardized, steps=40) for one in (SMOOTH, NOISY)]
        return min(fitted, key=lambda kernel: kernel.loss).prior

    assert likelier(values) is SMOOTH
    assert likelier(0.5 * values + noise) is NOISY


def test_the_expected_improvement_orders_points_that_are_hopeless_too() -> None:
    means = np.array([-1.0, 0.0, 1.0, 10.0, 100.0])
    gains = log_expected_improvement(means, np.ones(5), 0.0)
    assert np.isfinite(gains).all()
    assert (np.diff(gains) < 0).all()
    exact = math.log(1 / math.sqrt(math.tau))
    assert gains[1] == pytest.approx(exact)


def test_it_comes_close_where_chance_would_not() -> None:
    found = ran(opened(AutoSearch(), PLANE), 25, far)
    assert min(map(far, found)) < 1e-3  # by chance in 1 of 13 searches


def test_trials_that_a_scheduler_has_stopped_teach_what_they_would_have_reached() -> None:
    """Each loss falls by the same amount from step to step, so the first report says all."""
    search = opened(AutoSearch(), PLANE)
    found = []
    for trial in range(30):
        found.append(suggested(search, trial))
        steps = 9 if trial < 4 else 1
        for step in range(1, steps + 1):
            row = {"loss": far(found[-1]) - 0.1 * step, "training_iteration": step}
            search.on_trial_result(f"t{trial}", row)
        if steps < 9:
            search.on_trial_pruned(f"t{trial}")
        search.on_trial_complete(f"t{trial}", row)
    assert min(map(far, found)) < 2e-3


def test_what_is_learned_in_one_category_is_known_in_the_others() -> None:
    """`x` is the same in both categories; each is tried at one side only, but for the best."""
    inside = {"x": tune.uniform(0, 1)}
    space = {"kind": tune.choice([{"name": "a", **inside}, {"name": "b", **inside}])}
    search = opened(AutoSearch(), space)
    for trial in range(24):
        x = trial / 24
        search.recall(f"t{trial}", {"kind": {"name": "a" if x < 0.5 else "b", "x": x}})
        ended(search, trial, abs(x - 0.25) + (x < 0.5))
    config = suggested(search, "next")["kind"]
    assert config["name"] == "b"
    assert config["x"] < 0.5


def test_choices_of_numbers_are_ordered() -> None:
    """The best of 41 values is found in fewer trials than there are values."""
    space = {"n": tune.choice([2**i for i in range(41)]), "on": tune.choice([True, False])}
    found = ran(opened(AutoSearch(), space), 22, lambda one: abs(math.log2(one["n"]) - 29))
    assert any(one["n"] == 2**29 for one in found)


def test_as_many_workers_as_there_are_get_different_configs() -> None:
    space = {"n": tune.randint(0, 1000), "kind": tune.choice(["a", "b"])}
    search = opened(AutoSearch(), space)
    ran(search, 10, lambda one: abs(one["n"] - 500))
    found = {(one["n"], one["kind"]) for one in (suggested(search, f"w{i}") for i in range(512))}
    assert len(found) == 512


def test_the_search_is_over_when_everything_was_tried() -> None:
    search = opened(AutoSearch(), {"n": tune.randint(0, 12)})
    found = [one["n"] for one in ran(search, 12, lambda one: one["n"])]
    assert sorted(found) == [*range(12)]
    assert search.suggest("t12") == FINISHED


def test_the_values_of_a_grid_are_tried_in_turn() -> None:
    grids = {"depth": tune.grid_search([1, 2, 4]), "net": {"kind": tune.grid_search(["a", "b"])}}
    found = ran(opened(AutoSearch(), {**PLANE, **grids}), 18, far)
    turns = [(one["depth"], one["net"]["kind"]) for one in found]
    assert turns[:6] == [(1, "a"), (2, "a"), (4, "a"), (1, "b"), (2, "b"), (4, "b")]
    assert turns == 3 * turns[:6]


def test_several_metrics_are_improved_together() -> None:
    search = AutoSearch(metric=["near", "high"], mode=["min", "max"])
    assert search.set_search_properties(None, None, PLANE, seed=3)
    found = []
    for trial in range(30):
        config = suggested(search, trial)
        row = {"near": config["x"] + config["y"], "high": config["x"] - config["y"]}
        search.on_trial_complete(f"t{trial}", row)
        found.append(row)
    # The front is y = 0, with any x.
    assert min(one["near"] for one in found) < 0.05
    assert max(one["high"] for one in found) > 0.95


def test_where_trials_fail_is_avoided() -> None:
    search = opened(AutoSearch(), PLANE)
    failed = []
    for trial in range(30):
        config = suggested(search, trial)
        failed.append(config["y"] < 0.4)
        if failed[-1]:
            search.on_trial_complete(f"t{trial}", None, error=True)
        else:
            ended(search, trial, far(config))
    assert sum(failed[15:]) <= 2  # by chance in 1 of 37 searches


@pytest.mark.parametrize(("limit", "is_timed"), [({}, False), ({"time_budget_s": 1e6}, True)])
def test_a_slow_config_must_promise_more_if_the_time_is_limited(
    limit: dict[str, Any], is_timed: bool
) -> None:
    found = simulate(
        lambda config, step: {"loss": (config["x"] - 0.3) ** 2},
        param_space=PLANE,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", search_alg="auto", num_samples=30, **limit
        ),
        workers=1,
        iterations=1,
        seconds_per_iteration=lambda config: 100 ** config["y"],
    )
    slowness = [trial.config["y"] for trial in found.trials[15:]]
    assert (fmean(slowness) < 0.15) == is_timed
    best = min(found.trials, key=lambda trial: math.inf if trial.best is None else trial.best)
    assert best.config["x"] == pytest.approx(0.3, abs=0.02)


@pytest.mark.process
def test_a_run_that_is_killed_makes_the_choices_that_it_would_have_made(tmp_path: Path) -> None:
    """Its last configs come from the model, which has seen trials that were stopped early."""
    after, whole = killed_and_whole("auto_search", tmp_path, samples=14)
    assert after == whole
    assert len(after) == 14


def test_courses_that_fall_by_a_factor_do_not_mislead_it() -> None:
    """The good trials fall little from their early reports to the end, and the bad ones much."""
    for seed in range(3):
        found = simulate(
            lambda config, step: {"loss": (config["x"] - 3) ** 2 / step + config["y"]},
            param_space={"x": tune.uniform(0, 10), "y": tune.loguniform(1e-4, 1)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", search_alg="auto", scheduler="auto"
            ),
            workers=2,
            iterations=10,
            seed=seed,
        )
        best = min(found.trials, key=lambda trial: math.inf if trial.best is None else trial.best)
        assert best.config["x"] == pytest.approx(3, abs=0.03)


def punished(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"] if config["x"] < 0.2 else sys.float_info.max})


@pytest.mark.process
@pytest.mark.filterwarnings("error")
def test_the_largest_float_as_a_penalty_leaves_a_run_that_can_be_restored(tmp_path: Path) -> None:
    tuner = tune.Tuner(
        punished,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", search_alg=AutoSearch(seed=1), num_samples=16
        ),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path)),
    )
    best = (tuner.fit().best.config or {})["x"]
    assert best < 0.2
    again = tune.Tuner.restore(str(tmp_path / "run"), punished).fit()
    assert (len(again), (again.best.config or {})["x"]) == (16, best)
