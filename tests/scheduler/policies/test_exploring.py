"""The new value of a parameter: a neighbour of the old one, or a new draw."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.scheduler.policies.goal import Chance
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policies.population import Proposal, explore, fill, mutations_of
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.space import (
    choice,
    loguniform,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)


def explored(
    mutations: dict[str, Any], config: dict[str, Any], *, resample: float, times: int = 40
) -> list[Mapping[str, Any]]:
    made = mutations_of(mutations)
    return [
        explore(
            config, made, Chance(f"{n}"), resample_probability=resample, factors=(1.2, 0.8)
        ).config
        for n in range(times)
    ]


@pytest.mark.parametrize(
    ("mutation", "value", "near"),
    [
        (uniform(0.1, 2.0), 1.0, {1.2, 0.8}),
        (uniform(0.1, 2.0), 1.9, {2.0, 1.9 * 0.8}),
        (uniform(0.1, 2.0), 50.0, {2.0}),
        (uniform(0.1, 20.0), 10, {12.0, 8.0}),
        (quniform(0.0, 0.5, 0.1), 0.3, {0.4, 0.2}),
        (randn(0.0, 1.0), -1.0, {-1.2, -0.8}),
        (randint(1, 9), 4, {5, 3}),
        (randint(1, 9), 8, {8, 6}),
        (randint(1, 9), 1, {2, 1}),
        (["relu", "tanh", "elu"], "tanh", {"relu", "elu"}),
        (["relu", "tanh", "elu"], "elu", {"tanh", "elu"}),
        ((16, 32, 64), 32, {16, 64}),
        (choice(["sgd", "adam", "lion"]), "adam", {"sgd", "lion"}),
        (lambda: 0, 10, {12, 8}),
        (lambda: 0, 4, {5, 3}),
        (lambda: 0.0, 10.0, {12.0, 8.0}),
    ],
)
def test_a_value_moves_a_little_and_stays_in_its_domain(
    mutation: Any, value: Any, near: set[Any]
) -> None:
    found = [one["x"] for one in explored({"x": mutation}, {"x": value}, resample=0.0)]
    assert set(found) == near
    assert {type(one) for one in found} == {type(one) for one in near}


@pytest.mark.parametrize("value", ["gelu", None, math.nan])
def test_what_has_no_neighbours_is_drawn_again(value: Any) -> None:
    mutations = {"act": ["relu", "tanh"], "lr": uniform(0, 1)}
    found = explored(mutations, {"act": value, "lr": value}, resample=0.0)
    assert {one["act"] for one in found} == {"relu", "tanh"}
    assert all(0 <= one["lr"] <= 1 for one in found)


def test_what_is_drawn_again_lies_in_its_domain() -> None:
    mutations = {"lr": loguniform(1e-4, 1e-1), "nested": choice([uniform(0, 1), "off"])}
    found = explored(mutations, {"lr": 7.0, "nested": 0.5}, resample=1.0)
    assert all(1e-4 <= one["lr"] <= 1e-1 for one in found)
    assert len({one["lr"] for one in found}) == len(found)
    assert "off" in {one["nested"] for one in found}


def test_one_of_two_values_is_drawn_again_as_often_as_configured() -> None:
    found = explored({"x": uniform(0, 2)}, {"x": 1.0}, resample=0.25, times=400)
    assert 70 <= sum(one["x"] not in (1.2, 0.8) for one in found) <= 130


def test_nested_parameters_change_and_their_neighbours_stay() -> None:
    config = {"net": {"width": 8, "act": "relu"}, "lr": 1.0}
    found = explored({"net": {"width": [4, 8, 16]}}, config, resample=0.0)
    assert {one["net"]["width"] for one in found} == {4, 16}
    assert all(one["net"]["act"] == "relu" and one["lr"] == 1.0 for one in found)
    assert config == {"net": {"width": 8, "act": "relu"}, "lr": 1.0}


def test_what_a_config_lacks_is_filled_and_the_users_functions_are_left_to_be_asked() -> None:
    mutations = mutations_of({"lr": uniform(0, 1), "net": {"width": lambda: 3, "act": ["a"]}})
    filled = fill({"lr": 5.0}, mutations, Chance("0"))
    assert filled.config == {"lr": 5.0, "net": {"act": "a"}}
    assert filled.asked == {"functions": ["net/width"]}


@pytest.mark.parametrize("config", [{"net": "none"}, {"net": None}, {"net": {"cell": 3}}])
def test_what_stands_inside_of_a_choice_is_given_only_to_a_config_that_has_chosen_it(
    config: dict[str, Any],
) -> None:
    mutations = mutations_of({"net": {"cell": {"width": [4, 8], "act": lambda: "relu"}}})
    assert fill(config, mutations, Chance("0")) == Proposal(config=config)
    moved = explore(config, mutations, Chance("0"), resample_probability=0.5, factors=(1.2,))
    assert moved == Proposal(config=config)


@pytest.mark.parametrize(
    ("function", "value"),
    [(lambda: 5, 5), (sample_from(lambda spec: spec.config.lr * 2), 2.0)],
)
def test_functions_of_the_users_are_asked_with_the_config_as_it_is(
    function: Any, value: Any
) -> None:
    policy = PopulationBasedTraining(hyperparam_mutations={"x": function})
    policy._mutations = mutations_of({"x": function})
    asked = {"config": {"lr": 1.0}, "asked": {"functions": ["x"]}, "source": ""}
    assert policy.answer(asked)["config"] == {"lr": 1.0, "x": value}


def test_a_value_that_is_not_plain_data_is_refused_by_the_name_of_its_parameter() -> None:
    policy = PopulationBasedTraining(hyperparam_mutations={"net": {"act": lambda: math.sin}})
    policy._mutations = mutations_of({"net": {"act": lambda: math.sin}})
    asked = {"config": {}, "asked": {"functions": ["net/act"]}, "source": ""}
    with pytest.raises(InvalidConfig, match="net/act became <built-in function sin>"):
        policy.answer(asked)
