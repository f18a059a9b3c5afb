"""The successive search spaces of an experiment, and the trials that a new one adds."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trial.search_space.spaces import (
    Continued,
    combined,
    could_suggest,
    placed_in,
    separated,
    spaces_of,
)
from holdfast.trial.search_space.variants import Space
from holdfast.trial.space import choice, grid_search, uniform
from holdfast.trial.values import Ref, fold_values

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


def test_of_a_grid_that_has_grown_only_what_is_new_is_made() -> None:
    made = [{"x": 1}, {"x": 2}]
    assert left({"x": grid_search([2, 1, 7])}, made, 1) == [{"x": 7}]
    assert left({"x": grid_search([2, 1, 7])}, made, 2) == [
        {"x": 7},
        *({"x": n} for n in (2, 1, 7)),
    ]
    assert left({"x": grid_search([2])}, made, 1) == []


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
