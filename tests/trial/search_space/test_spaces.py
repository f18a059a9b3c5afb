"""The successive search spaces of an experiment, and the configs that a person adds."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.schema import DEEPEST
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.spaces import (
    Continued,
    added_variant,
    checked_config,
    chosen_of,
    combined,
    could_suggest,
    placed_in,
    separated,
    spaces_of,
)
from holdfast.trial.search_space.variants import Space
from holdfast.trial.values import Ref, fold_values
from holdfast.tune import choice, grid_search, loguniform, sample_from, uniform


def deep(levels: int) -> Any:
    """A number inside so many lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ADDED_TO: dict[str, Any] = {
    "lr": loguniform(1e-4, 1e-1),
    "net": {"width": choice([16, 32]), "depth": 2},
    "shape": choice([(1, 2), (3, 4)]),
    "batch": grid_search([8, 16]),
    "epochs": 10,
}


def test_values_of_the_space_are_taken_as_they_are() -> None:
    config, lines = checked_config(ADDED_TO, {"lr": 0.01, "net": {"width": 16}, "batch": 8})
    assert config == {"lr": 0.01, "net": {"width": 16}, "batch": 8}
    assert lines == []


def test_a_name_may_be_a_path_and_a_list_may_be_a_tuple() -> None:
    config, lines = checked_config(ADDED_TO, {"net/width": 32, "net/depth": 2, "shape": [3, 4]})
    assert config == {"net": {"width": 32, "depth": 2}, "shape": (3, 4)}
    assert lines == []


def test_a_value_outside_its_domain_is_reported_and_taken() -> None:
    config, lines = checked_config(ADDED_TO, {"lr": 5, "net": {"width": 64}, "epochs": 20})
    assert config == {"lr": 5, "net": {"width": 64}, "epochs": 20}
    assert lines == [
        "lr: 5, where param_space has loguniform(0.0001, 0.1)",
        "net/width: 64, where param_space has choice([16, 32])",
        "epochs: 20, where param_space has 10",
    ]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"lrr": 1}, r"'lrr' is not in the search space.*Did you mean 'lr'\?"),
        ({"net": {"widht": 1}}, r"'net/widht' is not in.*Did you mean 'net/width'"),
        ({"net/widht": 1}, r"'net/widht' is not in.*Did you mean 'net/width'"),
        ({"a": 1, "b": 2}, "'a', 'b' are not in the search space"),
        ([1], "must be a table of names and values"),
        ({"lr": {1, 2}}, "which JSON cannot represent"),
        ({"lr": b"x"}, "bytes, which JSON cannot represent"),
        ({"net": {1: 2}}, "which is not text"),
        ({1: 2}, "which is not text"),
        ({"lr": deep(2 * DEEPEST)}, "nested deeper"),
    ],
)
def test_what_is_no_config_of_the_space_is_refused(config: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        checked_config(ADDED_TO, config)


def test_names_of_a_space_of_the_search_itself_are_known_if_it_says_them() -> None:
    assert checked_config({"epochs": 1}, {"lr": 1}, ["lr"]) == ({"lr": 1}, [])
    assert checked_config({"epochs": 1}, {"any": 1}, None) == ({"any": 1}, [])
    with pytest.raises(InvalidConfig, match="Did you mean 'lr'"):
        checked_config({"epochs": 1}, {"lrr": 1}, ["lr"])


def test_the_other_values_are_drawn_from_the_space() -> None:
    variants = [added_variant(ADDED_TO, {"lr": 5}, Random(seed), 7) for seed in range(40)]
    assert {one.config["lr"] for one in variants} == {5}
    assert {one.config["batch"] for one in variants} == {8, 16}
    assert {one.config["net"]["width"] for one in variants} == {16, 32}
    assert {one.config["shape"] for one in variants} == {(1, 2), (3, 4)}
    (one, *_) = variants
    assert one.index == 7
    assert one.config["epochs"] == 10
    assert one.evaluated.keys() == {"lr", "net/width", "shape", "batch"}
    again = added_variant(ADDED_TO, {"lr": 5}, Random(0), 7)
    assert again == one


def test_a_function_of_the_space_sees_the_added_values() -> None:
    space = {"lr": uniform(0, 1), "twice": sample_from(lambda spec: 2 * spec.config.lr)}
    assert added_variant(space, {"lr": 3}, Random(0), 0).config == {"lr": 3, "twice": 6}
    assert added_variant(space, {"twice": 5}, Random(0), 0).config["twice"] == 5


def test_a_search_hears_only_of_what_it_would_have_chosen() -> None:
    config = added_variant(ADDED_TO, {"lr": 0.01}, Random(0), 0).config
    assert chosen_of(ADDED_TO, config).keys() == {"lr", "net", "shape", "batch"}
    assert chosen_of(ADDED_TO, config)["net"].keys() == {"width"}
    assert chosen_of({"epochs": 1}, {"epochs": 1, "lr": 2}) == {"lr": 2}


SPACE: dict[str, Any] = {"lr": uniform(0, 0.1), "net": {"kind": choice(["a", "b"])}, "epochs": 5}


@pytest.mark.parametrize(
    ("answer", "could"),
    [
        ({"lr": 0.05, "net": {"kind": "a"}}, True),
        ({"lr": 0.5, "net": {"kind": "a"}}, False),
        ({"lr": 0.05, "net": {"kind": "c"}}, False),
        ({"lr": 0.05}, False),
        ({"lr": 0.05, "net": {"kind": "a"}, "gone": 1}, False),
    ],
)
def test_it_is_known_what_a_search_of_another_space_could_have_suggested(
    answer: dict[str, Any], could: bool
) -> None:
    assert could_suggest(SPACE, {"lr", "net/kind"}, answer) is could


class Model:
    """A value that no config contains as it is."""


def test_a_config_finds_its_values_in_the_space_that_it_was_made_of() -> None:
    old, new = Model(), Model()
    spaces: dict[int, dict[str, Any]] = {
        0: {"net": {"model": old}},
        1: {"net": {"model": new}},
    }
    configs = []
    for number, space in spaces.items():
        drawn = Space(space).variant(0, Random(0)).config
        configs.append(placed_in(drawn, number))
    values = combined(spaces)
    assert [fold_values(config, values)["net"]["model"] for config in configs] == [old, new]
    assert [spaces_of(config) for config in configs] == [{0}, {1}]
    assert separated(values) == spaces


def test_a_config_of_plain_values_needs_no_space() -> None:
    assert spaces_of({"lr": 0.1, "sizes": [1, 2]}) == frozenset()
    assert spaces_of({"model": Ref(path=("model",), index=1, summary="M")}) == {0}


def left(space: dict[str, Any], configs: list[dict[str, Any]], samples: int) -> list[Any]:
    """The configs that are made of `space` in addition to the existing ones."""
    compiled = Space(space)
    continued = Continued(space, compiled.grid_size, configs)
    total = continued.total(samples)
    assert total is not None
    numbers = [continued.variant(position) for position in range(total)]
    return [compiled.variant(number, Random(0)).config for number in numbers]


def test_combinations_of_several_grids_are_distinguished() -> None:
    space = {"a": grid_search([1, 2]), "deep": {"b": grid_search(["x", "y"])}}
    made: list[dict[str, Any]] = [{"a": 2, "deep": {"b": "x"}}, {"a": 1}, {"a": 1, "deep": 3}]
    found = [(config["a"], config["deep"]["b"]) for config in left(space, made, 1)]
    assert found == [(1, "x"), (1, "y"), (2, "y")]


def test_without_a_grid_every_trial_counts() -> None:
    made = [{"lr": 0.5}, {"lr": 0.25}]
    assert len(left({"lr": uniform(0, 1)}, made, 5)) == 3
    assert left({"lr": uniform(0, 1)}, made, 1) == []


def test_without_end_is_without_end() -> None:
    assert Continued({"x": grid_search([1, 2])}, 2, [{"x": 2}]).total(-1) is None


def test_values_that_cannot_be_recognised_count_as_new() -> None:
    model = Model()
    made: list[dict[str, Any]] = [{"m": Ref(path=("m",), index=0, summary="Model")}]
    assert len(left({"m": grid_search([model])}, made, 1)) == 1
    nested = {"m": grid_search([{"a": grid_search([1, 2])}, 3])}
    assert len(left(nested, [{"m": 3}], 1)) == 3


@given(
    made=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12),
    samples=st.integers(1, 3),
)
def test_each_combination_is_made_as_often_as_it_is_missing(
    made: list[tuple[int, int]], samples: int
) -> None:
    space = {"a": grid_search([0, 1, 2]), "b": grid_search([2, 1])}
    new = left(space, [{"a": a, "b": b} for a, b in made], samples)
    had = Counter(made)
    wanted = {(a, b): max(0, samples - had[a, b]) for a in (0, 1, 2) for b in (2, 1)}
    assert Counter((c["a"], c["b"]) for c in new) == Counter(
        {key: count for key, count in wanted.items() if count}
    )
