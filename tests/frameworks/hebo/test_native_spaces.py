"""Spaces as HEBO and Nevergrad write them."""

from __future__ import annotations

from typing import Any

import nevergrad as ng
import numpy as np
import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.tune.search import HEBOSearch, LibrarySearch, NevergradSearch
from tests.frameworks.searches import Config, own, ran, replays, suggested

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


ENTRIES = [
    {"name": "x", "type": "num", "lb": 0, "ub": 1},
    {"name": "net/lr", "type": "pow", "lb": 1e-4, "ub": 1, "base": 10},
    {"name": "net/width", "type": "int", "lb": 1, "ub": 9},
    {"name": "k", "type": "pow_int", "lb": 1, "ub": 64, "base": 2},
    {"name": "c", "type": "cat", "categories": ["a", "b"]},
    {"name": "b", "type": "bool"},
    {"name": "s", "type": "step_int", "lb": 1, "ub": 9, "step": 2},
]


def test_hebo_reads_a_design_space_and_the_list_for_one() -> None:
    from hebo.design_space.design_space import DesignSpace

    def make() -> LibrarySearch:
        return HEBOSearch(DesignSpace().parse(ENTRIES), rand_sample=2)

    found = ran(own(make()), 4, lambda one: one["x"])
    for config in found:
        assert 0 <= config["x"] <= 1
        assert 1e-4 <= config["net"]["lr"] <= 1
        assert config["net"]["width"] in range(1, 10)
        assert config["k"] in range(1, 65)
        assert config["c"] in ("a", "b")
        assert type(config["b"]) is bool
        assert config["s"] in (1, 3, 5, 7, 9)
    replays(make, found, lambda one: one["x"])
    assert suggested(own(HEBOSearch(ENTRIES, rand_sample=2)), 0) == found[0]
    for wrong, told in (
        (
            [{"name": "x", "type": "int_exponent", "lb": 2, "ub": 4}],
            "^x: HEBOSearch does not read",
        ),
        ([{"name": "x"}], "^x: the type is missing"),
        ([3], "space must have dicts such as"),
    ):
        with pytest.raises(InvalidSearchSpace, match=told):
            own(HEBOSearch(wrong))


def parts() -> dict[str, Any]:
    return {
        "lr": ng.p.Log(lower=1e-4, upper=1.0),
        "kind": ng.p.Choice(["a", "b", None]),
        "n": ng.p.Scalar(lower=1, upper=9).set_integer_casting(),
        "net": ng.p.Dict(width=ng.p.Scalar(lower=0, upper=1), fixed=3),
    }


def check(config: Config) -> None:
    assert 1e-4 <= config["lr"] <= 1
    assert config["kind"] in ("a", "b", None)
    assert config["n"] in range(1, 10)
    assert 0 <= config["net"]["width"] <= 1
    assert config["net"]["fixed"] == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: NevergradSearch("OnePlusOne", space=ng.p.Dict(**parts()), **more),
        lambda **more: NevergradSearch(
            ng.optimizers.PSO, {"budget": 20}, space=ng.p.Instrumentation(**parts()), **more
        ),
        lambda **more: NevergradSearch(
            ng.optimizers.OnePlusOne(ng.p.Instrumentation(**parts()), budget=20), **more
        ),
    ],
)
def test_nevergrad_takes_its_own_parametrization(make: Any) -> None:
    made = make()  # which draws a number itself
    np.random.seed(1)
    before = np.random.random()
    np.random.seed(1)
    found = ran(own(made), 9, lambda one: one["lr"])
    for config in found:
        check(config)
    assert len({config["lr"] for config in found}) > 6
    assert np.random.random() == before  # the script's own numbers
    replays(make, found, lambda one: one["lr"])
    first = suggested(own(make(points_to_evaluate=[{"kind": "b", "n": 4}])), 0)
    check(first)
    assert (first["kind"], first["n"]) == ("b", 4)
    with pytest.raises(InvalidSearchSpace, match="depth is not in the search space"):
        own(make(points_to_evaluate=[{"depth": 3}]))


@pytest.mark.parametrize("wrapped", [False, True])
def test_elements_of_an_array_have_the_names_in_space(*, wrapped: bool) -> None:
    array = ng.p.Array(shape=(2,)).set_bounds(0, 10)
    parametrization = ng.p.Instrumentation(array) if wrapped else array

    def make(names: Any = ("height", "net/width"), **more: Any) -> NevergradSearch:
        optimizer = ng.optimizers.OnePlusOne(parametrization, budget=20)
        return NevergradSearch(optimizer, space=list(names), **more)

    found = ran(own(make()), 6, lambda one: one["height"])
    assert all(0 <= one["height"] <= 10 and 0 <= one["net"]["width"] <= 10 for one in found)
    replays(make, found, lambda one: one["height"])
    point = {"height": 0.25, "net": {"width": 0.5}}
    assert suggested(own(make(points_to_evaluate=[point])), 0) == point
    with pytest.raises(InvalidSearchSpace, match="space has 1 names, for an array of 2 numbers"):
        own(make(["x"]))
    with pytest.raises(InvalidSearchSpace, match="has no names for a config"):
        own(make([]))


def test_what_does_not_fit_an_optimizer_that_has_been_made_is_refused() -> None:
    optimizer = ng.optimizers.OnePlusOne(ng.p.Dict(**parts()), budget=20)
    with pytest.raises(InvalidConfig, match="leave out space"):
        NevergradSearch(optimizer, space={"x": tune.uniform(0, 1)})
    with pytest.raises(InvalidConfig, match="leave out optimizer_kwargs"):
        NevergradSearch(optimizer, {"budget": 9})
    optimizer.ask()
    with pytest.raises(InvalidConfig, match="has been asked already"):
        NevergradSearch(optimizer)
