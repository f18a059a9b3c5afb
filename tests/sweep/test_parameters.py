"""Parameters: the words of W&B and of `tune`, as domains; and what is refused."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from holdfast import tune
from holdfast.sweep.reading import read
from holdfast.sweep.settings import space_of
from holdfast.trial.errors import InvalidConfig


def space(text: str, *, is_grid: bool = False) -> Any:
    return space_of(read(f"x: {text}", "s.yaml", ".yaml"), is_grid=is_grid)["x"]


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        # W&B
        ("{value: 3}", 3),
        ("{value: [1, 2]}", [1, 2]),
        ("{values: [adam, no, 1e-4]}", tune.choice(["adam", "no", 1e-4])),
        ("{min: 1, max: 5}", tune.randint(1, 6)),
        ("{min: 1, max: 5.0}", tune.uniform(1, 5)),
        ("{distribution: uniform, min: 1, max: 5}", tune.uniform(1, 5)),
        ("{distribution: int_uniform, min: 1, max: 5}", tune.randint(1, 6)),
        ("{distribution: q_uniform, min: 0, max: 1, q: 0.1}", tune.quniform(0, 1, 0.1)),
        ("{distribution: q_uniform, min: 0, max: 8}", tune.qrandint(0, 8, 1)),
        ("{distribution: q_uniform, min: 0.5, max: 9.5, q: 2}", tune.qrandint(1, 9, 2)),
        ("{distribution: q_uniform, min: 0, max: 8, q: 1.0}", tune.quniform(0, 8, 1)),
        ("{distribution: q_log_uniform, min: -3, max: 3}", tune.qlograndint(1, 20, 1)),
        ("{distribution: log_uniform_values, min: 1e-4, max: 1e-1}", tune.loguniform(1e-4, 0.1)),
        ("{distribution: log_uniform, min: -2, max: 0}", tune.loguniform(math.exp(-2), 1)),
        (
            "{distribution: q_log_uniform_values, min: 1, max: 64, q: 2}",
            tune.qlograndint(1, 64, 2),
        ),
        ("{distribution: normal, mu: 1, sigma: 2}", tune.randn(1, 2)),
        ("{distribution: normal, sigma: 2}", tune.randn(0, 2)),
        ("{distribution: q_normal, mu: 1, sigma: 2, q: 0.5}", tune.qrandn(1, 2, 0.5)),
        ("{distribution: constant, value: a}", "a"),
        ("{distribution: categorical, values: [1]}", tune.choice([1])),
        ("{parameters: {y: {values: [1]}, z: 2}}", {"y": tune.choice([1]), "z": 2}),
        # ours
        ("5", 5),
        ("text", "text"),
        ("null", None),
        ("{uniform: [0, 1]}", tune.uniform(0, 1)),
        ("{loguniform: [1e-4, 1e-1]}", tune.loguniform(1e-4, 1e-1)),
        ("{loguniform: {lower: 1e-4, upper: 1}}", tune.loguniform(1e-4, 1)),
        ("{quniform: [0, 1, 0.1]}", tune.quniform(0, 1, 0.1)),
        ("{randint: [0, 10]}", tune.randint(0, 10)),
        ("{qlograndint: [1, 64, 2]}", tune.qlograndint(1, 64, 2)),
        ("{randn: [0, 1]}", tune.randn(0, 1)),
        ("{choice: [a, b]}", tune.choice(["a", "b"])),
        ("{grid_search: [a, b]}", tune.grid_search(["a", "b"])),
    ],
)
def test_a_parameter_is_a_domain(text: str, domain: Any) -> None:
    assert space(text) == domain


def test_a_whole_step_gives_whole_numbers() -> None:
    domain = space("{distribution: q_normal, mu: 100, sigma: 20, q: 8}")
    assert [type(domain.draw(Random(seed))) for seed in range(5)] == [int] * 5


def test_a_grid_takes_every_list_of_values() -> None:
    assert space("{values: [1, 2]}", is_grid=True) == tune.grid_search([1, 2])
    assert space("{parameters: {y: {values: [1]}}}", is_grid=True) == {"y": tune.grid_search([1])}
    assert space("{value: 7}", is_grid=True) == 7
    assert space("{min: 3, max: 5}", is_grid=True) == tune.grid_search([3, 4, 5])
    for text in ("{min: 1, max: 5.5}", "{uniform: [0, 1]}", "{choice: [1]}"):
        with pytest.raises(InvalidConfig, match="has no grid"):
            space(text, is_grid=True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[1, 2]", r"^s\.yaml:1: x: is a list: write \{values"),
        ("{}", "x: is empty"),
        ("{minn: 1, max: 2}", r"s\.yaml:1: x\.minn: is unknown here. Did you mean 'min'"),
        ("{min: 1}", "int_uniform needs max"),
        ("{min: a, max: 2}", r"x\.min: must be a number, not 'a'"),
        ("{min: 1, max: 2, q: 1}", r"x\.q: does not belong to int_uniform, which has min, max"),
        ("{min: 5, max: 1}", r"s\.yaml:1: x: "),
        ("{values: []}", r"x\.values: must be a list of values, not an empty list"),
        ("{values: 3}", r"x\.values: must be a list of values, not 3"),
        ("{distribution: unifrom, min: 1, max: 2}", "must be one of .*Did you mean 'uniform'"),
        ("{distribution: beta, a: 1, b: 2}", "beta is not supported. Use uniform"),
        ("{distribution: log_normal}", "log_normal is not supported. Use normal"),
        ("{distribution: uniform}", "uniform needs min and max"),
        ("{distribution: int_uniform, min: 0.5, max: 2}", "must be a whole number"),
        ("{values: [1, 2], probabilities: [0.2, 0.8]}", "probabilities is not supported. Repeat"),
        ("{mu: 1}", "says neither value, values, nor min and max"),
        ("{uniform: [0, 1], min: 2}", "uniform says everything: remove min"),
        ("{parameters: {}, value: 2}", "parameters says everything: remove value"),
        ("{uniform: [0]}", r"x\.uniform: .*upper"),
        ("{uniform: [0, one]}", r"x\.uniform\[1\]: must be a number, not 'one'"),
        ("{uniform: {low: 0}}", r"x\.uniform: .*low"),
        ("{loguniform: [0, 1]}", r"x\.loguniform: "),
        ("{choice: 3}", r"x\.choice: must be a list of values"),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_line(text: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        space(text)
