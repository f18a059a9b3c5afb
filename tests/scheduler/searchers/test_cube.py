"""Configs as points of the unit cube, and back."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import tune
from holdfast.scheduler.searchers.cube import (
    Density,
    assignment_at,
    drawn_at,
    place,
    place_of,
    value_at,
    vector_of,
)
from holdfast.trial.search_space.parameters import Parameter, Parameters

DOMAINS: list[Any] = [
    tune.uniform(-5, 5),
    tune.quniform(0, 1, 0.3),
    tune.loguniform(1e-6, 10),
    tune.qloguniform(0.1, 5, 0.1),
    tune.randint(-3, 9),
    tune.qrandint(8, 64, 8),
    tune.lograndint(1, 1000),
    tune.qlograndint(2, 64, 2),
    tune.randn(3, 2),
    tune.qrandn(0, 2, 0.5),
    tune.choice(["a", "b", "c"]),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_each_value_has_a_place_from_which_it_comes_back(domain: Any, seed: int) -> None:
    parameter = Parameter(name="x", domain=domain)
    value = parameter.draw(random.Random(seed))
    back = value_at(parameter, place(parameter, value))
    assert back == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert type(back) is type(value)


@settings(max_examples=25)
@given(part=st.floats(0, 1))
@pytest.mark.parametrize("domain", DOMAINS[:-1], ids=str)
def test_each_place_is_one_of_a_value(domain: Any, part: float) -> None:
    value = value_at(Parameter(name="x", domain=domain), part)
    assert domain.is_valid(value)
    assert math.isfinite(value)


def test_whole_numbers_have_equal_parts_of_the_axis() -> None:
    parameter = Parameter(name="n", domain=tune.randint(0, 4))
    found = [value_at(parameter, (i + 0.5) / 100) for i in range(100)]
    assert [found.count(n) for n in range(4)] == [25, 25, 25, 25]


def test_the_density_is_that_of_statsmodels() -> None:
    """Compared with `KDEMultivariate(data, var_type="ccu", bw=...)` of statsmodels 0.15.0."""
    points = ((0.1, 0.9, 0.0), (0.2, 0.5, 1.0), (0.4, 0.7, 2.0), (0.35, 0.8, 1.0))
    density = Density(points=points, sizes=(0, 0, 3), widths=(0.1, 0.2, 0.3))
    assert density.at((0.25, 0.7, 1.0)) == pytest.approx(1.64645912, rel=1e-8)


def test_its_widths_follow_the_normal_reference_rule_within_bounds() -> None:
    points = ((0.0, 0.5, 0.0), (1.0, 0.5, 1.0), (0.0, 0.5, 0.0), (1.0, 0.5, 1.0))
    found = Density.of(points, (0, 0, 2), least_width=0.01)
    reference = 1.06 * 0.5 * 4 ** (-1 / 7)
    assert found.widths == pytest.approx((reference, 0.01, reference))
    assert Density.of(points, (0, 0, 2), least_width=0.9).widths[2] == 0.5


@given(seed=st.integers(0, 2**32), width=st.floats(1e-3, 10))
def test_what_is_drawn_lies_in_the_cube(seed: int, width: float) -> None:
    density = Density(points=((0.0, 1.0), (1.0, 0.0)), sizes=(0, 2), widths=(width, 0.4))
    value, category = density.draw(random.Random(seed), widen=3)
    assert 0 <= value <= 1
    assert category in (0, 1)


def test_what_is_drawn_lies_near_the_points() -> None:
    density = Density(points=((0.2, 1.0),), sizes=(0, 3), widths=(0.01, 0.1))
    rng = random.Random(1)
    drawn = [density.draw(rng, widen=2) for _ in range(500)]
    assert all(0.1 < value < 0.3 for value, _ in drawn)
    assert 430 < [category for _, category in drawn].count(1.0) < 500


SPACE = {
    "lr": tune.loguniform(1e-5, 1e-1),
    "drop": tune.quniform(0, 0.5, 0.1),
    "width": tune.randint(4, 9),
    "batch": tune.qlograndint(8, 256, 8),
    "seed": tune.randint(-(2**62), 2**62),
    "start": tune.randn(1, 2),
    "net": tune.choice(["flat", {"depth": tune.randint(1, 4)}, {"tail": tune.uniform(1, 2)}]),
}
PARAMETERS = Parameters(SPACE, who="the test").all


def parameter(name: str) -> Any:
    return next(one for one in PARAMETERS if one.name == name)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.001, 0.999), min_size=9, max_size=9), st.integers(0, 99))
def test_a_config_lies_where_it_is_drawn(places: list[float], seed: int) -> None:
    assignment = assignment_at(PARAMETERS, tuple(places))
    vector = vector_of(PARAMETERS, assignment, random.Random(seed))
    assert all(0 <= place < 1 for place in vector)
    again = assignment_at(PARAMETERS, vector)
    assert again.keys() == assignment.keys()
    for name, value in assignment.items():
        if name == "seed":  # of 2 ** 63
            assert abs(again[name] - value) < 2**30
        elif name in ("lr", "start", "net:2/tail"):
            assert math.isclose(again[name], value, rel_tol=1e-9, abs_tol=1e-9)
        else:
            assert again[name] == value


def test_the_places_of_a_value_are_as_wide_as_it_is_likely() -> None:
    rng = random.Random(1)
    places = [place_of(parameter("width"), 5, rng) for _ in range(200)]
    assert 0.2 <= min(places) < 0.21
    assert 0.39 < max(places) < 0.4
    assert drawn_at(parameter("start"), 0.5) == 1
    assert math.isclose(drawn_at(parameter("lr"), 0.5), 1e-3)


def test_a_config_lies_at_the_same_place_for_the_same_chance_and_elsewhere_for_another() -> None:
    assignment = {"net": 0, "width": 4}
    vectors = [vector_of(PARAMETERS, assignment, random.Random(seed)) for seed in (1, 1, 2)]
    assert vectors[0] == vectors[1] != vectors[2]
