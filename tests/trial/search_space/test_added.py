"""Configs that a person adds: checked against the space, and completed from it."""

from random import Random
from typing import Any

import pytest

from holdfast.schema import DEEPEST
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.spaces import added_variant, checked_config, chosen_of
from holdfast.tune import choice, grid_search, loguniform, sample_from, uniform


def deep(levels: int) -> Any:
    """A number inside so many lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


SPACE: dict[str, Any] = {
    "lr": loguniform(1e-4, 1e-1),
    "net": {"width": choice([16, 32]), "depth": 2},
    "shape": choice([(1, 2), (3, 4)]),
    "batch": grid_search([8, 16]),
    "epochs": 10,
}


def test_values_of_the_space_are_taken_as_they_are() -> None:
    config, lines = checked_config(SPACE, {"lr": 0.01, "net": {"width": 16}, "batch": 8})
    assert config == {"lr": 0.01, "net": {"width": 16}, "batch": 8}
    assert lines == []


def test_a_name_may_be_a_path_and_a_list_may_be_a_tuple() -> None:
    config, lines = checked_config(SPACE, {"net/width": 32, "net/depth": 2, "shape": [3, 4]})
    assert config == {"net": {"width": 32, "depth": 2}, "shape": (3, 4)}
    assert lines == []


def test_a_value_outside_its_domain_is_reported_and_taken() -> None:
    config, lines = checked_config(SPACE, {"lr": 5, "net": {"width": 64}, "epochs": 20})
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
        checked_config(SPACE, config)


def test_names_of_a_space_of_the_search_itself_are_known_if_it_says_them() -> None:
    assert checked_config({"epochs": 1}, {"lr": 1}, ["lr"]) == ({"lr": 1}, [])
    assert checked_config({"epochs": 1}, {"any": 1}, None) == ({"any": 1}, [])
    with pytest.raises(InvalidConfig, match="Did you mean 'lr'"):
        checked_config({"epochs": 1}, {"lrr": 1}, ["lr"])


def test_the_other_values_are_drawn_from_the_space() -> None:
    variants = [added_variant(SPACE, {"lr": 5}, Random(seed), 7) for seed in range(40)]
    assert {one.config["lr"] for one in variants} == {5}
    assert {one.config["batch"] for one in variants} == {8, 16}
    assert {one.config["net"]["width"] for one in variants} == {16, 32}
    assert {one.config["shape"] for one in variants} == {(1, 2), (3, 4)}
    (one, *_) = variants
    assert one.index == 7
    assert one.config["epochs"] == 10
    assert one.evaluated.keys() == {"lr", "net/width", "shape", "batch"}
    again = added_variant(SPACE, {"lr": 5}, Random(0), 7)
    assert again == one


def test_a_function_of_the_space_sees_the_added_values() -> None:
    space = {"lr": uniform(0, 1), "twice": sample_from(lambda spec: 2 * spec.config.lr)}
    assert added_variant(space, {"lr": 3}, Random(0), 0).config == {"lr": 3, "twice": 6}
    assert added_variant(space, {"twice": 5}, Random(0), 0).config["twice"] == 5


def test_a_search_hears_only_of_what_it_would_have_chosen() -> None:
    config = added_variant(SPACE, {"lr": 0.01}, Random(0), 0).config
    assert chosen_of(SPACE, config).keys() == {"lr", "net", "shape", "batch"}
    assert chosen_of(SPACE, config)["net"].keys() == {"width"}
    assert chosen_of({"epochs": 1}, {"epochs": 1, "lr": 2}) == {"lr": 2}
