"""Configs as points of the unit cube, and back."""

import math
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import tune
from holdfast.scheduler.searchers.cube import assignment_at, drawn_at, place_of, vector_of
from holdfast.trial.search_space.parameters import Parameters

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
