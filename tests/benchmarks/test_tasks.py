"""Tuning problems have the best values and curves that they state, also the recorded ones."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tasks.analytic import BRANIN
from benchmarks.tasks.catalogue import TASKS, task
from benchmarks.tasks.domains import conditional
from benchmarks.tasks.front import Front, lacking
from benchmarks.tasks.functions import MINIMA
from benchmarks.tasks.mixed import BEST, NETWORK
from benchmarks.tasks.recorded import table
from benchmarks.tasks.space import draw
from benchmarks.tasks.task import drawn
from holdfast import tune

RECORDED = ("digits", "breast_cancer", "wine")


@pytest.mark.parametrize("name", MINIMA)
def test_a_function_is_0_at_its_minimiser_and_nowhere_less(name: str) -> None:
    function, minimiser = MINIMA[name]
    assert function(minimiser) == pytest.approx(0, abs=1e-6)
    random = Random(name)
    assert min(function([random.random() for _ in minimiser]) for _ in range(300)) > 0


@pytest.mark.parametrize("name", TASKS)
def test_no_configuration_is_ever_better_than_the_best(name: str) -> None:
    known, random = task(name), Random(name)
    for _ in range(10):
        state, config = known.begun, draw(known.space, random)
        for _ in range(known.epochs):
            state, value = known.step(state, config)
            assert value >= known.best


def test_the_network_has_no_loss_where_it_says() -> None:
    assert NETWORK.value(BEST, NETWORK.epochs) == pytest.approx(0, abs=1e-12)


def test_a_parameter_that_belongs_to_another_is_drawn_with_it_only() -> None:
    configs = [drawn(NETWORK, 0, index) for index in range(50)]
    assert {config["optimizer"] for config in configs} == {"sgd", "adam", "rmsprop"}
    assert all(("momentum" in config) == (config["optimizer"] == "sgd") for config in configs)


def test_a_parameter_of_one_category_is_searched_inside_of_it() -> None:
    space = conditional(NETWORK.space, tune)
    assert "momentum" not in space
    inside = space["optimizer"].categories[0]
    assert (inside["optimizer"], list(inside)) == ("sgd", ["optimizer", "momentum"])
    config = {**BEST, "optimizer": {"optimizer": "sgd", "momentum": 0.9}}
    del config["momentum"]
    assert NETWORK.given(config) == BEST


POINTS = st.lists(st.tuples(*[st.integers(min_value=0, max_value=9)] * 2), max_size=12)


@given(points=POINTS)
def test_the_volume_of_a_front_is_the_area_of_what_it_beats(points: list[tuple[int, int]]) -> None:
    cells = [(x, y) for x in range(8) for y in range(8)]
    beaten = [cell for cell in cells if any(p[0] <= cell[0] and p[1] <= cell[1] for p in points)]
    assert Front(points).volume((8, 8)) == len(beaten)


def test_a_run_that_has_seen_the_best_front_lacks_nothing() -> None:
    best = [(0.1, 0.5), (0.5, 0.1)]
    after = lacking(best, lambda config: config["size"], (1.0, 1.0))()
    assert after(0.5, {"size": 0.1}) == pytest.approx(0.5 * 0.4)
    assert after(0.7, {"size": 0.6}) == pytest.approx(0.5 * 0.4)
    assert after(0.1, {"size": 0.5}) == pytest.approx(0)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_task_answers_with_the_table_at_the_points_of_its_grid(name: str) -> None:
    arrays, known = table(name), task(name)
    random = Random(name)
    metric = arrays["error" if name == "digits" else "log_loss"]
    for _ in range(20):
        at = [random.randrange(size) for size in metric.shape[:-1]]
        grid = {a.name: arrays[a.name][i] for a, i in zip(known.space, at, strict=True)}
        config = {a.name: str(grid[a.name]) if a.choices else grid[a.name] for a in known.space}
        assert known.value(config, known.epochs) == pytest.approx(float(metric[(*at, -1)]))


def test_noise_is_the_same_for_the_same_seed_and_of_the_size_that_is_stated() -> None:
    config = drawn(BRANIN, 0, 0)
    seen = [BRANIN.seen(0.0, config, epoch, seed) for epoch in range(1, 28) for seed in range(20)]
    assert np.std(seen) == pytest.approx(BRANIN.noise, rel=0.15)
    assert BRANIN.seen(0.0, config, 3, 7) == BRANIN.seen(0.0, dict(config), 3, 7)
