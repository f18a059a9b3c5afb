"""A search space as parameters for libraries, and configs as assignments."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import tune
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Parameters
from holdfast.trial.space import Float, Integer
from holdfast.trial.values import Ref, fold_values


class Thing:
    """An object of the user's."""


THING = Thing()
SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 1),
    "net": tune.choice(
        [
            {"kind": "mlp", "width": tune.randint(1, 9), "thing": THING},
            {"kind": "cnn", "inner": tune.choice(["a", tune.quniform(0, 1, 0.25)])},
            "none",
        ]
    ),
    "data": {"thing": THING, "share": tune.uniform(0, 1)},
    "layers": [tune.qrandint(2, 8, 2), "fixed"],
    "seed": 7,
}


def parameters(space: dict[str, Any], **more: Any) -> Parameters:
    return Parameters(space, who="ThatSearch", **more)


@given(st.integers(0, 10_000))
def test_each_assignment_is_a_config_and_the_config_the_assignment(seed: int) -> None:
    known = parameters(SPACE)
    assignment = known.complete({}, random.Random(seed))
    config = known.config(assignment)
    assert known.assignment(fold_values(config, SPACE), "again") == assignment
    assert known.fit(assignment, "whoever") == assignment
    assert set(config) == {"lr", "net", "data", "layers"}


def test_objects_of_the_space_are_named_and_not_carried() -> None:
    answer = {"lr": 0.1, "net": 0, "net:0/width": 3, "data/share": 0.5, "layers/0": 4}
    named = parameters(SPACE).config(answer)["net"]["thing"]
    assert named == Ref(path=("net", 0, "thing"), index=None, summary="Thing")
    assert parameters(SPACE, named=False).config(answer)["net"]["thing"] is THING


def test_a_part_of_a_config_says_what_it_says() -> None:
    known = parameters(SPACE)
    assert known.assignment({"net": {"width": 3}}, "a point") == {"net": 0, "net:0/width": 3}
    whole = known.complete({"net": 0, "net:0/width": 3}, random.Random(0))
    assert whole["net:0/width"] == 3
    assert set(whole) == {"lr", "net", "net:0/width", "data/share", "layers/0"}


def test_a_category_is_distinguished_from_its_like_by_its_type() -> None:
    known = parameters({"x": tune.choice([1, True, 1.0, "1"])})
    for number, value in enumerate([1, True, 1.0, "1"]):
        assert known.assignment({"x": value}, "a point") == {"x": number}


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ({"lrr": 1}, "a point: lrr is not in the search space, only 'lr', 'net'"),
        ({"lr": 2}, "a point: lr: 2 is not in loguniform"),
        ({"lr": True}, "a point: lr: True is not in loguniform"),
        ({"net": "some"}, "a point: net: 'some' is not one of its categories"),
        ({"layers": [2]}, "a point: layers must be a list of 2"),
        ({"data": 3}, "a point: data must be a dict"),
    ],
)
def test_a_point_that_the_space_does_not_have_is_refused(point: Any, told: str) -> None:
    with pytest.raises(InvalidSearchSpace, match=told):
        parameters(SPACE).assignment(point, "a point")


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (
            {"a": {"b": tune.grid_search([1])}},
            "a/b: ThatSearch cannot search a grid_search.*choice",
        ),
        (
            {"a": tune.sample_from(lambda: 1)},
            "a: ThatSearch cannot search a sample_from.*trainable",
        ),
        ({"a": 1}, "nothing that ThatSearch could search"),
        ({"a/b": tune.randn(), "a": {"b": tune.randn()}}, "a/b: .* two parameters of this name"),
    ],
)
def test_what_no_library_can_search_is_refused_by_its_name(space: Any, told: str) -> None:
    with pytest.raises(InvalidSearchSpace, match=told):
        parameters(space)


def test_an_answer_is_brought_to_what_the_parameter_can_be() -> None:
    space = {
        "n": tune.randint(0, 5),
        "even": tune.qrandint(1, 9, 2),
        "tenth": tune.quniform(0, 1, 0.1),
        "normal": tune.qrandn(0, 1, 0.5),
        "kind": tune.choice("ab"),
    }
    answer = {"n": 4.7, "even": 1.1, "tenth": 0.30000000000000004, "normal": 9.9, "kind": 1.0}
    fitted = parameters(space).fit({**answer, "other": 3}, "who")
    assert fitted == {"n": 4, "even": 2, "tenth": 0.3, "normal": 10.0, "kind": 1}
    with pytest.raises(InvalidSearchSpace, match="tenth: who returned no value"):
        parameters(space).fit({"n": 1, "even": 2}, "who")
    with pytest.raises(InvalidSearchSpace, match="n cannot be nan"):
        parameters(space).fit({"n": float("nan")}, "who")


@given(st.floats(-3, 3), st.floats(-1e6, 1e6))
def test_the_nearest_number_is_one_that_can_be_drawn(lower: float, value: float) -> None:
    real = Float(lower=lower, upper=lower + 2, q=0.25)
    whole = Integer(lower=int(lower * 10), upper=int(lower * 10) + 20, q=3)
    for domain in (real, whole):
        nearest = domain.nearest(value)
        assert domain.is_valid(nearest)
        assert domain.nearest(nearest) == nearest
