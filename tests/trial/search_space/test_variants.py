"""Variants: the grid times the samples, drawn by number, and the changes that a restore may
make."""

import json
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.description import changes, describe, differences
from holdfast.trial.search_space.variants import Space, Variant
from holdfast.trial.space import (
    Domain,
    choice,
    grid_search,
    has_user_code,
    randint,
    sample_from,
    uniform,
)
from holdfast.trial.values import Ref, fold_values


class Model:
    """A value that is not plain."""


Pair = namedtuple("Pair", "a b")


def variant(space: Space, index: int, seed: int = 0) -> Variant:
    return space.variant(index, Random(f"{seed}/{space.stream(index)}"))


def configs(space: Space, num_samples: int = 1) -> list[dict[str, Any]]:
    total = space.total(num_samples)
    assert total is not None
    return [variant(space, index).config for index in range(total)]


def config(space: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return variant(Space(space), index).config


# --- the grid --------------------


def test_a_grid_inside_a_grid_value_runs_before_the_next_value() -> None:
    space = Space({"a": grid_search([{"b": grid_search([1, 2])}, 3]), "c": grid_search([0, 1])})
    assert space.grid_size == 6
    assert [(each["a"], each["c"]) for each in configs(space)] == [
        ({"b": 1}, 0),
        ({"b": 2}, 0),
        (3, 0),
        ({"b": 1}, 1),
        ({"b": 2}, 1),
        (3, 1),
    ]


@given(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3))
def test_each_combination_comes_once_for_each_sample(sizes: list[int], samples: int) -> None:
    space = Space({f"k{i}": grid_search(range(size)) for i, size in enumerate(sizes)})
    seen = [tuple(each.values()) for each in configs(space, samples)]
    assert len(seen) == samples * space.grid_size
    assert all(seen.count(combination) == samples for combination in seen)


def test_the_total_counts_grid_times_samples() -> None:
    space = Space({"a": grid_search([1, 2, 3]), "b": uniform(0, 1)})
    assert [space.total(samples) for samples in (0, 1, 4, -1)] == [0, 3, 12, None]
    assert Space({}).total(2) == 2
    with pytest.raises(InvalidSearchSpace, match="-1 for no limit, not -2"):
        space.total(-2)


# --- samples --------------------


def test_tuples_and_lists_keep_their_types() -> None:
    drawn = config({"betas": (uniform(0, 1), (choice([3]), [grid_search([4])])), "l": [(1,)]})
    assert type(drawn["betas"]) is tuple
    assert drawn["betas"][1] == (3, [4])
    assert drawn["l"] == [(1,)]


def test_numpy_scalars_become_plain_numbers() -> None:
    halves: Any = np.array([0.5])
    drawn = config({"a": grid_search(np.arange(2)), "b": choice(halves), "c": np.int8(3)})
    assert drawn == {"a": 0, "b": 0.5, "c": 3}
    assert [type(value) for value in drawn.values()] == [int, float, int]


# --- values that are not plain --------------------


def test_values_that_are_not_plain_are_named_and_fold_back() -> None:
    model, deep, odd, array = Model(), Model(), {1: Model()}, np.arange(3)
    space = {
        "model": model,
        "data": {"train": grid_search([model, {"deep": choice([deep])}])},
        "act": choice([Model]),
        "pair": (uniform(0, 1), [model]),
        "odd": odd,
        "array": choice([array]),
        "ordered": OrderedDict(a=1),
    }
    first, second = variant(Space(space), 0), variant(Space(space), 1)
    assert first.config["model"] == Ref(path=("model",), index=None, summary="Model")
    assert first.config["data"]["train"].index == 0
    shown = {"1": "Model"}
    assert first.config["odd"] == Ref(path=("odd",), index=None, summary="dict", shown=shown)
    assert first.config["array"] == Ref(
        path=("array",), index=0, summary="ndarray[0]", shown=[0, 1, 2]
    )
    deep_ref = Ref(path=("data", "train", 1, "deep"), index=0, summary="Model[0]")
    assert second.config["data"] == {"train": {"deep": deep_ref}}
    assert second.evaluated["data/train/deep"] == deep_ref
    assert second.evaluated["act"].summary == "Model"
    folded = fold_values(second.config, space)
    assert folded["data"]["train"]["deep"] is deep
    assert folded["act"] is Model
    assert folded["pair"][1][0] is folded["model"] is model
    assert folded["odd"] is odd
    assert folded["array"] is array
    assert folded["ordered"] is space["ordered"]


def test_plain_values_that_json_does_not_know_are_held_as_they_are() -> None:
    space = {
        "labels": {0: "cat", 1: "dog"},
        "kept": {3, 1},
        "frozen": choice([frozenset({1})]),
        "seed": grid_search([10**30]),
        "made": sample_from(lambda: {5: {6}}),
    }
    drawn = variant(Space(space), 0).config
    assert drawn == {
        "labels": {0: "cat", 1: "dog"},
        "kept": {3, 1},
        "frozen": frozenset({1}),
        "seed": 10**30,
        "made": {5: {6}},
    }
    assert drawn["kept"] is not space["kept"]
    assert drawn["labels"] is not space["labels"]


@given(
    st.recursive(
        st.sampled_from([1, "a", Model(), Model, {2: 3}, uniform(0, 1), sample_from(lambda: 4)]),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.lists(inner, min_size=1, max_size=3).map(tuple)
            | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
            | st.lists(inner, min_size=1, max_size=3).map(grid_search)
        ),
        max_leaves=10,
    ),
    st.integers(0, 99),
)
def test_every_name_in_a_configuration_leads_to_its_value(value: Any, index: int) -> None:
    space = {"a": value, "b": choice([1, Model])}
    drawn = config(space, index)
    leaves = leaves_of(fold_values(drawn, space))
    assert not any(isinstance(leaf, (Ref, Domain)) for leaf in leaves)
    assert len(leaves) == len(leaves_of(drawn))


def leaves_of(value: Any) -> list[Any]:
    if type(value) is dict and all(type(key) is str for key in value):
        return [leaf for item in value.values() for leaf in leaves_of(item)]
    if type(value) in (list, tuple):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [value]


# --- sample_from --------------------


def test_functions_that_need_each_other_resolve_in_any_order() -> None:
    space = {
        "c": sample_from(lambda config: config["b"] + 1),
        "b": sample_from(lambda config: config["list"][1] + 1),
        "list": [0, sample_from(lambda config: config["x"])],
        "x": randint(5, 6),
    }
    assert config(space) == {"c": 7, "b": 6, "list": [0, 5], "x": 5}
    assert variant(Space(space), 0).evaluated == {"c": 7, "b": 6, "list/1": 5, "x": 5}


def test_functions_that_wait_for_each_other_are_named() -> None:
    space = {
        "a": sample_from(lambda config: config["net"]["b"]),
        "net": {"b": sample_from(lambda config: config["a"])},
        "c": sample_from(lambda: 1),
    }
    message = "wait for each other: a needs net/b; net/b needs a"
    with pytest.raises(InvalidSearchSpace, match=message):
        config(space)


def test_a_function_that_raises_is_named_with_its_error() -> None:
    with pytest.raises(
        InvalidSearchSpace, match="net/a: sample_from's function raised KeyError: 'x'"
    ):
        config({"net": {"a": sample_from(lambda config: config["x"])}})


def test_what_a_function_returns_is_its_own() -> None:
    space = {
        "net": {"widths": [1, choice([2])]},
        "copy": sample_from(lambda spec: spec.config.net),
        "raw": sample_from(lambda: Model),
        "domain": sample_from(lambda spec: uniform(5, 6)),
    }
    drawn = config(space)
    assert drawn["copy"] == {"widths": [1, 2]}
    assert type(drawn["copy"]) is dict
    assert drawn["copy"]["widths"] is not drawn["net"]["widths"]
    assert drawn["raw"] is Model
    assert 5 <= drawn["domain"] <= 6


def test_domains_are_drawn_at_any_depth_of_what_a_function_returns() -> None:
    made = {
        "widths": [choice([10, 20]) for _ in range(3)],
        "pair": (uniform(5, 6), {"deep": choice([{"of": [choice([7])]}])}),
        "function": [sample_from(lambda spec: spec.config.x + 1)],
        "set": {choice([3])},
    }
    space = {"x": sample_from(lambda: 1), "net": sample_from(lambda: made)}
    first, again = config(space), config(space)
    net = first["net"]
    assert all(width in (10, 20) for width in net["widths"])
    assert type(net["pair"]) is tuple
    assert 5 <= net["pair"][0] <= 6
    assert net["pair"][1] == {"deep": {"of": [7]}}
    assert (net["function"], net["set"]) == ([2], {3})
    assert again == first  # with the same seed


def test_a_grid_in_what_a_function_returns_is_refused_by_name() -> None:
    for net in (sample_from(lambda: grid_search([1])), sample_from(lambda: [grid_search([1])])):
        with pytest.raises(InvalidSearchSpace, match="net: sample_from: it returned a grid"):
            config({"net": net})


def test_user_code_is_found_wherever_it_stands() -> None:
    function = sample_from(lambda: 1)
    for space in ([function], {"a": choice([{"b": function}])}, {"a": grid_search([1, function])}):
        assert has_user_code({"x": space})
    assert not has_user_code({"a": choice([1, uniform(0, 1)]), "f": len, "g": grid_search([1])})


# --- presets and constant grids --------------------


def test_a_preset_takes_the_place_of_a_sample_and_runs_the_grids_it_leaves_open() -> None:
    space = {"a": grid_search([1, 2, 3]), "b": grid_search("xy")}
    compiled = Space(space, points_to_evaluate=[{"a": 2}, {"b": "y"}])
    assert [compiled.total(samples) for samples in (1, 2, 3, -1)] == [5, 5, 11, None]
    assert [tuple(each.values()) for each in configs(compiled, 3)[:7]] == [
        (2, "x"),
        (2, "y"),
        (1, "y"),
        (2, "y"),
        (3, "y"),
        (1, "x"),
        (2, "x"),
    ]


def test_a_preset_that_equals_two_categories_means_the_very_one() -> None:
    compiled = Space({"a": choice([1, True])}, points_to_evaluate=[{"a": True}, {"a": 1}])
    assert [variant(compiled, index).config["a"] is True for index in (0, 1)] == [True, False]


def test_a_preset_outside_the_space_is_used_and_noticed() -> None:
    model = Model()
    points: list[dict[str, Any]] = [{"lr": 5}, {"fixed": model}, {"grid": [9]}]
    compiled = Space(
        {"lr": uniform(0, 1), "fixed": 3, "grid": grid_search([1, 2])}, points_to_evaluate=points
    )
    assert compiled.total(3) == 5
    assert variant(compiled, 0).config["lr"] == 5
    assert variant(compiled, 2).config["fixed"] is model
    assert variant(compiled, 4).config["grid"] == [9]
    assert compiled.notices == (
        "points_to_evaluate[0]: lr: 5, where param_space has uniform(0.0, 1.0)",
        "points_to_evaluate[1]: fixed: <Model>, where param_space has 3",
        "points_to_evaluate[2]: grid: [9], where param_space has grid_search([1, 2])",
    )


def test_an_expression_of_an_older_ray_is_a_constant_and_noticed() -> None:
    space = {"a": 2, "net": {"b": {"eval": "spec.config.a * 10"}}, "c": {"eval": "every epoch"}}
    compiled = Space(space)
    assert variant(compiled, 0).config == space
    (notice,) = compiled.notices
    assert notice == (
        "param_space: net/b: {'eval': 'spec.config.a * 10'} is a constant, which nothing "
        "evaluates. Write tune.sample_from(lambda spec: spec.config.a * 10)"
    )


def test_a_constant_grid_shares_its_random_values_within_a_sample() -> None:
    space = {
        "grid": grid_search([{"x": uniform(0, 1)}, 2, 3]),
        "lr": uniform(0, 1),
        "pick": choice([uniform(0, 1), uniform(1, 2)]),
    }
    compiled = Space(space, points_to_evaluate=[{"lr": 0.5}], constant_grid_search=True)
    drawn = configs(compiled, 3)
    shared = [(each["lr"], each["pick"]) for each in drawn]
    assert [len(set(shared[start : start + 3])) for start in (0, 3, 6)] == [1, 1, 1]
    assert len(set(shared)) == 3
    assert [compiled.stream(index) for index in range(9)] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    assert [Space(space).stream(index) for index in range(4)] == [0, 1, 2, 3]


# --- bad spaces --------------------


def recursive() -> dict[str, Any]:
    space: dict[str, Any] = {"a": Model()}
    space["self"] = space
    return space


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Space([1]), r"param_space must be a dict of parameters, not \[1\]"),  # type: ignore[arg-type]
        (lambda: Space(grid_search([1])), r"param_space must be a dict of parameters"),
        (lambda: Space({1: 2}), r"^param_space: keys must be text, not 1$"),  # type: ignore[dict-item]
        (lambda: Space({"a": {1: uniform(0, 1)}}), r"^param_space: a: keys must be text, not 1$"),
        (
            lambda: Space({"a": [{"grid_search": 3}]}),
            r"a/0: grid_search needs a non-empty list of values",
        ),
        (lambda: Space({"a": choice([grid_search([1])])}), r"a: a grid_search inside a choice"),
        (lambda: Space({"a": choice([{"b": grid_search([1])}])}), r"a/b: a grid_search inside"),
        (lambda: Space({"a": Pair(1, uniform(0, 1))}), r"a: a Pair contains domains; use a plain"),
        (lambda: Space(recursive()), r"param_space is nested too deeply, or contains itself"),
        (
            lambda: Space({"a": 1}, points_to_evaluate=[{}, {"b": 1}]),
            r"points_to_evaluate\[1\]: b: is not in the search space, only 'a'",
        ),
        (
            lambda: Space({"a": 1}, points_to_evaluate=[{"a": uniform(0, 1)}]),
            r"points_to_evaluate\[0\]: a: a preset must be a value, not a domain",
        ),
        (
            lambda: Space({"a": 1}, points_to_evaluate=[3]),  # type: ignore[list-item]
            r"points_to_evaluate\[0\] must be a dict of parameters, not 3",
        ),
    ],
)
def test_a_space_that_cannot_be_sampled_is_refused_naming_the_key(
    make: Callable[[], Space], message: str
) -> None:
    with pytest.raises(InvalidSearchSpace, match=message):
        make()


# --- descriptions --------------------


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return differences(json.loads(json.dumps(describe(old))), describe(new))


def test_a_description_tells_domains_and_constants() -> None:
    space = {
        "net": {"width": choice([16, {"w": uniform(0, 1)}]), "drop": grid_search((0, 0.5))},
        "list": [1, randint(0, 3)],
        "plain": [1, (2,)],
        "model": Model(),
        "models": choice([Model(), (Model, 1)]),
        "empty": {},
        "f": sample_from(lambda: 1),
    }
    assert [("/".join(map(str, e["path"])), e["text"], e["varied"]) for e in describe(space)] == [
        ("net/width", "choice([16, {'w': uniform(0.0, 1.0)}])", True),
        ("net/drop", "grid_search([0, 0.5])", True),
        ("list/0", "1", False),
        ("list/1", "randint(0, 3)", True),
        ("plain", "[1, (2,)]", False),
        ("model", "<Model>", False),
        ("models", "choice([<Model>, (<type>, 1)])", True),
        ("empty", "{}", False),
        ("f", "sample_from(...)", True),
    ]


def test_replaced_objects_are_no_difference() -> None:
    def space() -> dict[str, Any]:
        return {
            "model": grid_search([Model(), Model()]),
            "data": {"train": Model(), "odd": {1: Model()}},
            "lr": sample_from(lambda: 1),
        }

    assert changed(space(), space()) == []


ODD = {"labels": {0: {"a"}, None: 1}, "kept": [{3, "a", 1}, frozenset()], "seed": 10**30}


def test_sets_and_odd_keys_are_described_in_an_order_of_their_own() -> None:
    assert [entry["text"] for entry in describe(ODD)] == [
        "{0: set(['a']), None: 1}",
        "set([1, 3, 'a'])",
        "frozenset([])",
        str(10**30),
    ]
    assert changed(ODD, {**ODD, "labels": {0: {"b"}, None: 1}}) == [
        "labels: was {0: set(['a']), None: 1}, now {0: set(['b']), None: 1}"
    ]
    assert describe({"seed": 10**5000})[0]["text"] == hex(10**5000)
    assert changes(describe(ODD), {**ODD, "seed": 10**31}) == [f"seed: was {10**30}, now {10**31}"]


def test_another_order_counts_only_where_it_changes_the_draws() -> None:
    a, b = uniform(0, 1), uniform(0, 2)
    assert changed({"a": a, "b": b}, {"b": b, "a": a}) == [
        "order of the varied keys: was a, b, now b, a"
    ]
    assert changed({"a": a, "c": 1, "d": 2}, {"d": 2, "c": 1, "a": a}) == []


def test_a_long_difference_shows_the_place_where_it_begins() -> None:
    old = {"a": grid_search(range(1000)), "b": list(range(100))}
    new = {"a": grid_search([*range(999), -1]), "b": [*range(100), 100]}
    first, second = changed(old, new)
    assert first.endswith("997, 998, -1])")
    assert "..." in first
    assert "98, 99]," in second
    assert second.endswith("98, 99, 100]")
    assert max(len(first), len(second)) < 300


def test_differently_typed_keys_are_not_mixed_up() -> None:
    assert changed({"a": {"b": 1}}, {"a/b": 1}) == [
        "a/b: was 1, now absent",
        "a/b: was absent, now 1",
    ]
