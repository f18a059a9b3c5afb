"""Spaces as bayesian-optimization, ZOOpt, Ax and ConfigSpace write them."""

from __future__ import annotations

import pickle
from typing import Any

import ConfigSpace as cs
import pytest
from zoopt import ValueType

from holdfast import tune
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.tune.search import (
    AxSearch,
    BayesOptSearch,
    HyperOptSearch,
    LibrarySearch,
    TuneBOHB,
    ZOOptSearch,
)
from tests.frameworks.searches import own, ran, replays, suggested

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def test_bayesopt_reads_tuples_as_bounds_and_choices() -> None:
    space = {
        "lr": (1e-3, 1.0),
        "net": {"width": (1, 9, int), "kind": ("conv", "dense")},
        "b": tune.uniform(2, 3),
    }

    def make() -> LibrarySearch:
        return BayesOptSearch(space, random_search_steps=3)

    found = ran(own(make()), 6, lambda one: one["lr"])
    for config in found:
        assert 1e-3 <= config["lr"] <= 1
        assert config["net"]["width"] in range(1, 10)
        assert config["net"]["kind"] in ("conv", "dense")
        assert 2 <= config["b"] <= 3
    assert len({config["lr"] for config in found}) == 6
    replays(make, found, lambda one: one["lr"])
    with pytest.raises(InvalidSearchSpace, match=r"^x: \[0, 1\] is a list.*write \(0, 1\)"):
        own(BayesOptSearch({"x": [0, 1]}))


def test_bayesopt_compares_configs_to_some_decimals_of_their_ranges() -> None:
    """Ten numbers to one decimal are soon tried out; to five they are not."""
    space = {"x": (0.0, 1000.0)}
    rough = own(BayesOptSearch(space, random_search_steps=99, repeat_float_precision=1))
    answers = [rough.suggest(f"t{i}") for i in range(12)]
    assert answers[-1] == rough.FINISHED
    assert len({round(one["x"] / 1000, 1) for one in answers if isinstance(one, dict)}) > 5
    fine = own(BayesOptSearch(space, random_search_steps=99))
    assert all(isinstance(fine.suggest(f"t{i}"), dict) for i in range(12))
    with pytest.raises(InvalidConfig, match="repeat_float_precision"):
        BayesOptSearch(space, repeat_float_precision=-1)


def test_zoopt_reads_its_tuples() -> None:
    space = {
        "height": (ValueType.CONTINUOUS, [-10, 10], 1e-2),
        "fine": (ValueType.CONTINUOUS, [0, 1], 1e-12),
        "width": (ValueType.DISCRETE, [0, 9], True),
        "unordered": (ValueType.DISCRETE, [1, 3], False),
        "layers": (ValueType.GRID, [4, 8, 16]),
        "b": tune.choice(["x", "y"]),
    }

    def make() -> LibrarySearch:
        return ZOOptSearch(budget=8, dim_dict=space)

    found = ran(own(make()), 8, lambda one: abs(one["height"]))
    for config in found:
        assert -10 <= config["height"] <= 10
        assert round(config["height"], 2) == config["height"]
        assert 0 <= config["fine"] <= 1
        assert config["width"] in range(10)
        assert config["unordered"] in (1, 2, 3)
        assert config["layers"] in (4, 8, 16)
        assert config["b"] in ("x", "y")
    replays(make, found, lambda one: abs(one["height"]))
    with pytest.raises(InvalidSearchSpace, match=r"^x: .* is not a dimension of ZOOpt"):
        own(ZOOptSearch(budget=8, dim_dict={"x": (ValueType.CONTINUOUS, 0, 1)}))


AX_SPACE: list[dict[str, Any]] = [
    {"name": "lr", "type": "range", "bounds": [1e-4, 1.0], "log_scale": True},
    {"name": "net/width", "type": "range", "bounds": [1, 9], "value_type": "int"},
    {
        "name": "net/kind",
        "type": "choice",
        "values": ["conv", "dense"],
        "dependents": {"conv": ["size"]},
    },
    {"name": "size", "type": "range", "bounds": [1, 5]},
    {"name": "epochs", "type": "fixed", "value": 3},
]


def test_ax_reads_a_list_of_dicts() -> None:
    def make() -> LibrarySearch:
        return AxSearch(AX_SPACE, initialization_budget=3)

    found = ran(own(make()), 5, lambda one: one["lr"])
    for config in found:
        assert 1e-4 <= config["lr"] <= 1
        assert config["net"]["width"] in range(1, 10)
        assert config["epochs"] == 3
        assert ("size" in config) == (config["net"]["kind"] == "conv")
        assert config.get("size", 1) in range(1, 6)
    replays(make, found, lambda one: one["lr"])
    for wrong, told in (
        ([{"name": "x"}], "^x: type must be 'range'"),
        ([3], "space must have dicts"),
        ([{"name": "x", "type": "range", "bounds": [1]}], "^x: bounds must be two numbers"),
        ([{**AX_SPACE[0], "is_fidelity": True}], "^lr: AxSearch does not support 'is_fidelity'"),
        ([AX_SPACE[2]], "^size is a dependent, but space does not define it"),
        ([AX_SPACE[0], AX_SPACE[0]], "^lr: space has two parameters"),
    ):
        with pytest.raises(InvalidSearchSpace, match=told):
            own(AxSearch(wrong))


def test_ax_reads_the_configs_of_its_newer_interface() -> None:
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    space = [
        RangeParameterConfig(name="x", bounds=(0, 4), parameter_type="float"),
        RangeParameterConfig(name="lr", bounds=(1e-3, 1), parameter_type="float", scaling="log"),
        ChoiceParameterConfig(name="k", values=["a", "b"], parameter_type="str"),
    ]
    [found] = ran(own(AxSearch(space)), 1, lambda one: one["x"])
    assert 0 <= found["x"] <= 4
    assert 1e-3 <= found["lr"] <= 1
    assert found["k"] in ("a", "b")


@pytest.mark.filterwarnings("ignore")  # of the numerics of a model of so smooth a function
def test_ax_keeps_other_metrics_within_their_bounds() -> None:
    """The best loss alone is where the size is too large."""
    search = own(
        AxSearch(
            [{"name": "x", "type": "range", "bounds": [0.0, 1.0]}],
            outcome_constraints=["model/size <= 0.4"],
            initialization_budget=4,
        )
    )
    for trial in range(8):
        x = suggested(search, trial)["x"]
        row = {"loss": (x - 0.9) ** 2, "model": {"size": x}, "training_iteration": 1}
        search.on_trial_complete(f"t{trial}", row)
    last = suggested(search, 8)["x"]
    assert 0.2 < last < 0.55
    for wrong in ("size", "a + b >= 3 * baseline", 3):
        with pytest.raises(InvalidConfig, match="outcome_constraints must be bounds"):
            AxSearch(outcome_constraints=[wrong])  # type: ignore[list-item]


def test_ax_takes_the_experiment_of_a_client() -> None:
    from ax.service.ax_client import AxClient, ObjectiveProperties

    client = AxClient(verbose_logging=False)
    client.create_experiment(
        parameters=AX_SPACE[:2]
        + [{**one, "name": name} for one in AX_SPACE[3:4] for name in "ab"],
        objectives={"accuracy": ObjectiveProperties(minimize=False)},
        parameter_constraints=["a + b <= 6"],
        outcome_constraints=["size <= 10"],
    )
    search = AxSearch(ax_client=client, initialization_budget=2)
    assert (search.metric, search.mode) == ("accuracy", "max")
    again = own(pickle.loads(pickle.dumps(search)))
    for trial in range(4):
        config = suggested(again, trial)
        assert config["a"] + config["b"] <= 6
        assert config["net"]["width"] in range(1, 10)
        again.on_trial_complete(f"t{trial}", {"accuracy": config["lr"], "size": config["lr"]})
    with pytest.raises(InvalidConfig, match="a space already"):
        AxSearch(AX_SPACE, ax_client=client)
    client.get_next_trial()
    with pytest.raises(InvalidConfig, match=r"ax_client has 1 trials already"):
        AxSearch(ax_client=client)
    assert AxSearch(AX_SPACE, ax_client=AxClient(verbose_logging=False)).own_space == AX_SPACE
    with pytest.raises(InvalidConfig, match="ax_client must be an AxClient"):
        AxSearch(ax_client="client")


def configuration_space() -> cs.ConfigurationSpace:
    space = cs.ConfigurationSpace(seed=1)
    kind = cs.CategoricalHyperparameter("net/kind", ["conv", "dense", "none"])
    size = cs.OrdinalHyperparameter("size", ["s", "m", "l"])
    width = cs.UniformIntegerHyperparameter("width", 1, 9, log=True)
    deep = cs.UniformFloatHyperparameter("deep", 0, 1)
    lr = cs.UniformFloatHyperparameter("lr", 1e-4, 1, log=True)
    space.add([kind, size, width, deep, lr, cs.Constant("epochs", 3)])
    space.add(cs.InCondition(width, kind, ["conv", "dense"]))
    space.add(
        cs.AndConjunction(
            cs.EqualsCondition(deep, kind, "conv"), cs.EqualsCondition(deep, size, "m")
        )
    )
    return space


def test_bohb_reads_a_configuration_space() -> None:
    def make() -> LibrarySearch:
        return TuneBOHB(configuration_space(), bohb_config={"min_points_in_model": 4}, seed=1)

    found = ran(own(make()), 40, lambda one: one["lr"])
    for config in found:
        kind = config["net"]["kind"]
        assert kind in ("conv", "dense", "none")
        assert ("width" in config) == (kind != "none")
        assert ("deep" in config) == (kind == "conv" and config["size"] == "m")
        assert 1e-4 <= config["lr"] <= 1
        assert config["epochs"] == 3
    assert {"deep" in config for config in found} == {True, False}
    replays(make, found, lambda one: one["lr"])
    point = {"net": {"kind": "conv"}, "size": "m", "lr": 0.5}
    first = suggested(own(TuneBOHB(configuration_space(), points_to_evaluate=[point])), 0)
    assert {key: first[key] for key in ("net", "size", "lr")} == point
    assert {"deep", "width", "epochs"} <= first.keys()
    with pytest.raises(InvalidSearchSpace, match="net/kind: 'x' is not one of its categories"):
        own(TuneBOHB(configuration_space(), points_to_evaluate=[{"net": {"kind": "x"}}]))


def test_parts_of_a_configuration_space_that_bohb_cannot_search_are_refused_by_name() -> None:
    for parts, told in (
        ([cs.NormalFloatHyperparameter("n", 0, 1, lower=-5, upper=5)], "^n: .*NormalFloat within"),
        ([cs.CategoricalHyperparameter("w", ["a", "b"], weights=[1, 2])], "^w: .*weights"),
        ([cs.BetaFloatHyperparameter("b", 1, 2, lower=0, upper=1)], "^b: .*BetaFloat"),
    ):
        space = cs.ConfigurationSpace()
        space.add(parts)
        with pytest.raises(InvalidSearchSpace, match=told):
            own(TuneBOHB(space))
    space = configuration_space()
    space.add(cs.ForbiddenEqualsClause(space["size"], "l"))
    with pytest.raises(InvalidSearchSpace, match=r"^space forbids .*size == 'l'"):
        own(TuneBOHB(space))


def test_parameters_of_another_library_are_refused_by_name() -> None:
    part = cs.UniformFloatHyperparameter("x", 0, 1)
    for search in (
        HyperOptSearch({"x": part}),
        TuneBOHB({"x": part}),
        ZOOptSearch(budget=3, dim_dict={"x": part}),
    ):
        with pytest.raises(
            InvalidSearchSpace,
            match=r"^space\['x'\] is ConfigSpace's Uniform.* with a ConfigurationSpace",
        ):
            own(search)
