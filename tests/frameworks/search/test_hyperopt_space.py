"""HyperOptSearch over HyperOpt's own expressions, alone and next to tune's domains."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
from hyperopt import hp
from hyperopt.pyll import scope

from holdfast import tune
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.tune.search import ConcurrencyLimiter, HyperOptSearch
from tests.frameworks.searches import Config, check_replayed, opened, ran, suggested

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Model:
    """An object that a space contains."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model)

    __hash__ = None  # type: ignore[assignment]


MIXED: dict[str, Any] = {
    "a": hp.uniform("an_a", 0, 1),
    "b": tune.quniform(0, 1, 0.1),
    "n": scope.int(hp.quniform("n", 1, 9, 2)),
    "net": {
        "rate": hp.loguniform("rate", -9, 0),
        "width": tune.randint(1, 9),
        "kind": hp.choice(
            "kind",
            [
                {"name": "conv", "size": hp.randint("size", 1, 5), "pad": tune.uniform(2, 3)},
                {"name": "dense", "drop": hp.normal("drop", 0, 1)},
                "none",
            ],
        ),
    },
    "inside": tune.choice([{"x": hp.uniform("x", 4, 5), "y": tune.randint(1, 3)}, Model()]),
    "often": hp.pchoice("often", [(0.9, True), (0.1, False)]),
    "list": [hp.lognormal("l", 0, 1), tune.choice([1, 2]), 3],
    "fixed": {"epochs": 3, "layers": [64, 64]},
}


def loss(config: Config) -> float:
    return float(config["a"] + config["b"] + abs(config["n"] - 4))


def own(space: Any, **given: Any) -> HyperOptSearch:
    search = HyperOptSearch(space, n_initial_points=4, random_state_seed=3, **given)
    assert not search.set_search_properties("loss", "min", {})
    return search


def check_mixed(config: Config) -> None:
    """Every parameter of the space is in its config, with a value of its domain."""
    assert 0 <= config["a"] <= 1
    assert math.isclose(config["b"] * 10 % 1, 0, abs_tol=1e-9) or config["b"] * 10 % 1 > 0.99
    assert type(config["n"]) is int
    assert 0 < config["net"]["rate"] <= 1
    assert config["net"]["width"] in range(1, 9)
    match config["net"]["kind"]:
        case {"name": "conv", "size": size, "pad": pad}:
            assert size in range(1, 5)
            assert 2 <= pad <= 3
        case {"name": "dense", "drop": drop}:
            assert math.isfinite(drop)
        case other:
            assert other == "none"
    if config["inside"] != Model():
        assert 4 <= config["inside"]["x"] <= 5
        assert config["inside"]["y"] in (1, 2)
    assert type(config["often"]) is bool
    assert config["list"][0] > 0
    assert config["list"][1] in (1, 2)
    assert config["list"][2] == 3


def test_each_parameter_of_a_mixed_space_is_in_each_config() -> None:
    configs = ran(own(MIXED), 12, loss)
    for config in configs:
        check_mixed(config)
        assert config["fixed"] == {"epochs": 3, "layers": [64, 64]}
        assert json.loads(json.dumps(config, default=str))
    assert len({config["a"] for config in configs}) == 12
    assert {str(config["net"]["kind"])[:20] for config in configs} > {"none"}


def test_a_space_of_the_tuner_may_be_mixed_too() -> None:
    """Only the searched values are suggested: the Tuner adds the fixed ones."""
    search = opened(HyperOptSearch(n_initial_points=4), MIXED)
    config = suggested(search, 0)
    check_mixed(config)
    assert "fixed" not in config


def test_after_its_history_is_replayed_it_answers_the_same() -> None:
    whole = ran(own(MIXED), 9, loss)
    search = pickle.loads(
        pickle.dumps(HyperOptSearch(MIXED, n_initial_points=4, random_state_seed=3))
    )
    search.set_search_properties("loss", "min", {})
    check_replayed(search, whole, loss)


def test_values_that_the_library_computes_are_replayed_by_asking_again() -> None:
    space = {"n": 1 + hp.randint("n", 9), "power": 10 ** hp.uniform("power", -4, 0)}
    whole = ran(own(space), 9, lambda one: abs(one["n"] - 4) + one["power"])
    assert all(1 <= one["n"] <= 9 and 1e-4 <= one["power"] <= 1 for one in whole)
    check_replayed(own(space), whole, lambda one: abs(one["n"] - 4) + one["power"])
    with pytest.raises(InvalidSearchSpace, match=r"points_to_evaluate\[0\]: n: HyperOpt computes"):
        own(space, points_to_evaluate=[{"n": 3}])


def test_the_whole_space_may_be_a_choice() -> None:
    space = hp.choice("model", [{"svm": hp.uniform("c", 0, 1)}, {"tree": tune.randint(1, 9)}])
    found = ran(own(space), 12, lambda one: one.get("svm", 1))
    assert {tuple(one) for one in found} == {("svm",), ("tree",)}
    with pytest.raises(InvalidSearchSpace, match=r"space gives 0\.\d+, but a config is a dict"):
        suggested(own(hp.uniform("x", 0, 1)), 0)


def test_points_have_values_and_not_numbers_of_categories() -> None:
    point = {
        "a": 0.5,
        "n": 5,
        "net": {"kind": {"name": "dense"}, "width": 3},
        "inside": {"x": 4.5, "y": 2},
        "often": False,
    }
    search = own(MIXED, points_to_evaluate=[point, {"net": {"kind": "none"}}])
    first, second, *_ = ran(search, 3, loss)
    check_mixed(first)
    assert {key: first[key] for key in ("a", "n", "inside", "often")} == {
        key: point[key] for key in ("a", "n", "inside", "often")
    }
    assert first["net"]["kind"].keys() == {"name", "drop"}
    assert second["net"]["kind"] == "none"
    for wrong, told in (
        ({"a": 2}, "a: 2 is not one of its values"),
        ({"net": {"kind": "sparse"}}, "net/kind: 'sparse' is not one of its categories"),
        ({"lr": 2}, "lr is not in the search space"),
    ):
        with pytest.raises(InvalidSearchSpace, match=told):
            own(MIXED, points_to_evaluate=[wrong])


def test_what_cannot_be_searched_is_refused_by_name() -> None:
    for space, told in (
        ({"a": hp.uniform("x", 0, 1), "b": hp.uniform("x", 0, 2)}, "two parameters .* label .*x"),
        ({"a": hp.uniform("x", 0, 1), "b": tune.grid_search([1, 2])}, "b: HyperOptSearch cannot"),
        ({"a": hp.uniform("x", 0, 1), "b": tune.sample_from(len)}, "b: .* sample_from"),
        ({"a": hp.choice("a", [{"grid_search": [1]}, 2])}, "a: a grid_search inside"),
    ):
        with pytest.raises(InvalidSearchSpace, match=told):
            own(space)


@pytest.mark.process
def test_a_run_of_a_mixed_space_has_each_parameter_and_can_be_extended(tmp_path: Any) -> None:
    def train(config: Config) -> None:
        check_mixed(config)
        assert config["fixed"]["epochs"] == 3
        tune.report({"loss": loss(config)})

    search = ConcurrencyLimiter(HyperOptSearch(n_initial_points=2), max_concurrent=1)
    results = tune.Tuner(
        train,
        param_space=MIXED,
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=3, search_alg=search),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert results.num_errors == 0
    more = tune.Tuner.restore(results.experiment_path, train, num_samples=5, extend=True).fit()
    assert (len(more), more.num_errors) == (5, 0)


def test_without_hyperopt_search_an_expression_is_refused_by_name(tmp_path: Any) -> None:
    for space in ({"a": MIXED["a"]}, {"a": [MIXED["a"]]}, {"a": tune.choice([MIXED["a"]])}):
        with pytest.raises(InvalidSearchSpace, match=r"hyperopt's Apply.*HyperOptSearch"):
            tune.Tuner(
                print, param_space=space, run_config=tune.RunConfig(storage_path=str(tmp_path))
            ).fit()
