"""Tuning problems have the best values and curves that they state, also the recorded ones."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tasks.analytic import BRANIN, EPOCHS, HARTMANN6
from benchmarks.tasks.catalogue import TASKS, task
from benchmarks.tasks.domains import conditional
from benchmarks.tasks.evolving import QUADRATIC
from benchmarks.tasks.front import Front, lacking
from benchmarks.tasks.functions import MINIMA
from benchmarks.tasks.mixed import BEST, NETWORK
from benchmarks.tasks.recorded import table
from benchmarks.tasks.space import Axis, draw
from benchmarks.tasks.task import drawn
from holdfast import tune

RECORDED = ("digits", "breast_cancer", "wine")
PARTS = st.floats(min_value=0, max_value=1, exclude_max=True)


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


def test_a_curve_ends_at_the_value_of_its_function() -> None:
    for known in (BRANIN, HARTMANN6):
        at_minimum = dict(zip((a.name for a in known.space), MINIMA[known.name][1], strict=True))
        assert known.value(at_minimum, EPOCHS) == pytest.approx(0, abs=1e-6)
        assert known.value(at_minimum, 1) > 0.1


def test_curves_cross_so_that_the_first_epochs_can_mislead() -> None:
    configs = [drawn(HARTMANN6, 0, index) for index in range(40)]
    early = sorted(range(40), key=lambda index: HARTMANN6.value(configs[index], 1))
    late = sorted(range(40), key=lambda index: HARTMANN6.value(configs[index], EPOCHS))
    assert early[:4] != late[:4]


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


def test_a_rate_that_falls_beats_every_constant_one() -> None:
    def loss(rates: list[float]) -> float:
        state, value = QUADRATIC.begun, 0.0
        for rate in rates:
            state, value = QUADRATIC.step(state, {"lr": rate})
        return value

    constant = min(loss([rate] * QUADRATIC.epochs) for rate in np.geomspace(1e-3, 1.9, 40))
    falling = loss(list(np.geomspace(1.0, 0.02, QUADRATIC.epochs)))
    assert QUADRATIC.best < falling < 0.8 * constant


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_curves_are_whole_and_most_of_them_fall(name: str) -> None:
    arrays = table(name)
    sizes = [len(arrays[str(axis)]) for axis in arrays["axes"]]
    for metric, most in (("error", 1.0), ("log_loss", 10.0)):
        curves = arrays[metric]
        assert curves.shape == (*sizes, task(name).epochs)
        assert np.isfinite(curves).all()
        assert curves.min() >= 0
        assert curves.max() <= most
        assert (curves[..., -1] <= curves[..., 0]).mean() > 0.7


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


@given(part=PARTS, log=st.booleans())
def test_a_value_lies_where_it_was_taken_from(part: float, log: bool) -> None:
    axis = Axis(name="x", low=0.5, high=80.0, log=log)
    assert axis.low <= axis.at(part) <= axis.high
    assert axis.part_of(axis.at(part)) == pytest.approx(part, abs=1e-9)


def test_seeds_and_places_give_configurations_of_their_own() -> None:
    configs = [drawn(BRANIN, seed, index) for seed in range(5) for index in range(20)]
    assert len({config["x0"] for config in configs}) == len(configs)
    assert drawn(BRANIN, 3, 4) == configs[3 * 20 + 4]
