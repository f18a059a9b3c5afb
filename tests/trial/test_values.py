"""Values of configurations: plain, named, pickled, nested, flattened and tagged."""

from __future__ import annotations

import json
import math
import random
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import tune
from holdfast.schema import DEEPEST
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.variants import (
    ConfigView,
    Space,
    Spec,
    Unresolved,
    Waiting,
)
from holdfast.trial.space import choice, grid_search, uniform
from holdfast.trial.values import (
    Opaque,
    Ref,
    changed_tag,
    excerpt,
    flatten,
    fold_values,
    format_tag,
    from_plain,
    in_order,
    is_plain,
    nesting_fault,
    readable,
    seal,
    summarize,
    to_plain,
)


def own_dict() -> dict[str, Any]:
    inner: dict[str, Any] = {}
    inner["self"] = inner
    return inner


def own_list() -> list[Any]:
    inner: list[Any] = [1]
    inner.append((inner,))
    return inner


def nested(levels: int) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    place = whole
    for _ in range(levels - 1):
        place["a"] = {}
        place = place["a"]
    return whole


@pytest.mark.parametrize("levels", [DEEPEST, DEEPEST + 1, 100_000])
def test_more_than_the_deepest_level_is_too_deep(levels: int) -> None:
    fault = f"a/a/a: nested more than {DEEPEST} levels deep" if levels > DEEPEST else ""
    assert nesting_fault(nested(levels)) == fault


@pytest.mark.parametrize("make", [own_dict, own_list, lambda: nested(5000)])
def test_a_tuner_refuses_such_a_search_space(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidSearchSpace, match=r"^param_space: net.*(itself|levels deep)$"):
        tune.Tuner(lambda config: None, param_space={"net": make()})


def test_a_function_that_samples_such_a_value_is_named() -> None:
    space = Space({"net": tune.sample_from(lambda spec: own_dict())})
    with pytest.raises(InvalidSearchSpace, match=r"net: sample_from: .* contains itself"):
        space.variant(0, random.Random(0))


class Model:
    """A value that is not plain."""


class Colour(IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")

SHOWN = st.none() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers())
REFS = st.builds(
    Ref,
    path=st.lists(st.text() | st.integers(0, 9), max_size=3).map(tuple),
    index=st.none() | st.integers(0, 9),
    summary=st.text(max_size=5),
    shown=SHOWN,
)
OPAQUES = st.builds(
    Opaque, pickled=st.binary(max_size=9), summary=st.text(max_size=5), shown=SHOWN
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
HASHABLE = SCALARS | st.lists(SCALARS, max_size=2).map(tuple) | st.frozensets(SCALARS, max_size=2)
TEXTS = st.text(max_size=5) | st.just("__holdfast__")
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | REFS | OPAQUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXTS, inner, max_size=3)
        | st.dictionaries(TEXTS | HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_configuration_comes_back_from_json_and_msgpack_as_it_was(value: Any) -> None:
    plain = to_plain(value)
    for copy in (json.loads(json.dumps(plain)), msgpack.unpackb(msgpack.packb(plain))):
        assert shape(from_plain(copy)) == shape(value)


def shape(value: Any) -> Any:
    """`value` with its types, because True equals 1 and 0.0 equals -0.0."""
    if isinstance(value, dict):
        return [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, map(shape, value)))
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    return type(value), repr(value)


def test_what_looks_like_a_mark_is_kept_as_the_users_own() -> None:
    forged: dict[str, Any] = {"__holdfast__": "ref", "path": [], "index": None, "summary": "x"}
    assert to_plain(forged) != forged
    assert from_plain(to_plain(forged)) == forged
    assert from_plain(to_plain(to_plain(forged))) == to_plain(forged)


def test_an_unknown_mark_is_an_error() -> None:
    with pytest.raises(InvalidSearchSpace, match=r"unknown mark: \{'__holdfast__': 'later'\}"):
        from_plain({"lr": {"__holdfast__": "later"}})


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(InvalidSearchSpace, match="net/0/model: a Model cannot be stored"):
        to_plain({"net": [{"model": Model()}]})


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        2**64,
        10**5000,
        0.5,
        math.nan,
        "é",
        b"",
        [],
        {"a": ({}, [1])},
        {1: 2, None: {True: 0.5}, (1, "a"): [], frozenset({b""}): 1},
        {1, "a", (None, 0.5)},
        frozenset({frozenset({1})}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values_are_plain(value: object) -> None:
    assert is_plain(value)


@pytest.mark.parametrize(
    "value",
    [
        Model(),
        Model,
        len,
        "\udc80",
        {1: Model()},
        {Model(): 1},
        {Colour.RED: 1},
        {(1, "\udc80"): 1},
        {"\udc80": 2},
        {"a": [Model()]},
        {Model},
        frozenset({1j}),
        1j,
        np.float64(1),
        np.zeros(2),
        Colour.RED,
        Point(1, 2),
        OrderedDict(a=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_something_else_is_not_plain(value: object) -> None:
    assert not is_plain(value)


def test_a_list_that_contains_itself_is_not_plain() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert not is_plain(loop)


def test_a_named_value_is_folded_back_from_where_it_stands() -> None:
    model, deep, nested = Model(), Model(), Model()
    space = {
        "model": model,
        "net": {"kind": choice([1, {"deep": deep}])},
        "grid": grid_search([0, choice([0, nested]), Model]),
        "layers": [1, [model]],
    }
    config = {
        "model": Ref(path=("model",), index=None, summary="Model"),
        "net": {"kind": {"deep": Ref(path=("net", "kind", 1, "deep"), index=None, summary="")}},
        "grid": (Ref(path=("grid", 1), index=1, summary=""), 5),
        "layers": [1, [Ref(path=("layers", 1, 0), index=None, summary="Model")]],
        "class": Ref(path=("grid",), index=2, summary="Model"),
        "carried": Opaque(pickled=b"x", summary="x"),
    }
    folded = fold_values(config, space)
    assert folded == {
        "model": model,
        "net": {"kind": {"deep": deep}},
        "grid": (nested, 5),
        "layers": [1, [model]],
        "class": Model,
        "carried": config["carried"],
    }
    assert folded["layers"] is not config["layers"]


@pytest.mark.parametrize(
    "space",
    [
        {},
        {"net": 3},
        {"net": {}},
        {"net": {"model": "text"}},
        {"net": {"model": choice([1])}},
        {"net": {"model": grid_search([choice([1]), choice([1])])}},
        {"net": {"model": np.zeros(3)}},
    ],
    ids=str,
)
def test_a_named_value_that_is_gone_is_an_error_naming_its_key(space: dict[str, Any]) -> None:
    config = {"net": {"model": Ref(path=("net", "model"), index=1, summary="Model[1]")}}
    with pytest.raises(
        InvalidSearchSpace, match=r"net/model: the configuration uses a Model\[1\]"
    ):
        fold_values(config, space)


def test_a_name_that_leads_to_a_domain_is_an_error() -> None:
    config = {"a": Ref(path=("a",), index=None, summary="Model")}
    for space in ({"a": uniform(0, 1)}, {"a": grid_search([1])}):
        with pytest.raises(InvalidSearchSpace, match="a: the configuration uses a Model"):
            fold_values(config, space)


@pytest.mark.parametrize("many", [set(range(10_001)), dict.fromkeys(range(10_001))], ids=len)
def test_a_large_set_is_data_and_is_carried(many: Any) -> None:
    sealed = seal({"a": many}, lambda _, value: Opaque(pickled=b"", summary=summarize(value)))
    assert sealed == {"a": Opaque(pickled=b"", summary=type(many).__name__)}
    assert excerpt(many) == f"{type(many).__name__} of 10,001"


def test_what_was_written_before_values_could_be_shown_still_loads() -> None:
    assert from_plain(
        {"__holdfast__": "ref", "path": ["a", 1], "index": 2, "summary": "Model[2]"}
    ) == Ref(path=("a", 1), index=2, summary="Model[2]")
    carried = {"__holdfast__": "opaque", "base64": "eA==", "summary": "Model"}
    assert from_plain(carried) == Opaque(pickled=b"x", summary="Model")
    assert to_plain(Opaque(pickled=b"x", summary="Model")) == carried


def test_a_set_has_the_same_order_in_every_process() -> None:
    members = [None, "b", 2, "a", (2, "x"), 10, 0.5, b"z", frozenset({3, 1}), (1,), True]
    ordered = [0.5, True, 2, 10, "a", "b", b"z", (1,), (2, "x"), frozenset({1, 3}), None]
    assert in_order(members) == in_order(reversed(members)) == ordered


# -- how people read them -----------------------------------------------------------------------


class Grade(Enum):
    GOOD = "good"
    OTHER = Model


class Stack(list[Any]):
    """A list of the user's own kind."""


LOOP = Stack()
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({1: "a", None: {2}, (1, "b"): b"\xff"}, {"1": "a", "None": [2], "(1, 'b')": "\\xff"}),
        ({1: "a", "1": "b"}, {"1": "a", "1 (str)": "b"}),
        ({"b", "a", 3}, [3, "a", "b"]),
        (10**30, 10**30),
        (10**5000, "an integer of 16,610 bits"),
        ("name in another code \udc80", "name in another code ?"),
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.ones(1000), [1.0] * 1000),
        (np.ones((7, 143)), "ndarray of shape (7, 143), float64"),
        (np.array(["2026-01-01"], "M8[D]"), ["2026-01-01"]),
        (np.datetime64("2026-01-01"), "2026-01-01"),
        (np.array([10**30, {1}], dtype=object), [10**30, [1]]),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (timedelta(minutes=1), 60.0),
        (PurePosixPath("data", "train"), "data/train"),
        (Decimal("0.25"), 0.25),
        (Grade.GOOD, "good"),
        (Grade.OTHER, "OTHER"),
        (Colour.RED, 1),
        (1j, "1j"),
        (OrderedDict(a=(1, Model())), {"a": [1, "Model"]}),
        (Stack(range(1001)), "Stack of 1,001"),
        (Stack([np.ones(600), np.ones(600)]), "Stack of 2"),
        ({1: np.ones(2000), 2: Model}, {"1": "ndarray of shape (2000,), float64", "2": "Model"}),
        (Model(), None),
        (Model, None),
        (len, None),
        (LOOP, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_shown_as_far_as_it_can_be_read(value: Any, shown: Any) -> None:
    assert excerpt(value) == shown
    assert json.loads(json.dumps(excerpt(value))) == shown


def test_what_a_users_own_class_refuses_to_show_is_named() -> None:
    class Closed(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("closed")

    assert excerpt(Closed(a=1)) is None


def test_a_name_is_read_as_what_it_shows() -> None:
    assert readable(Ref(path=("a",), index=1, summary="Model[1]")) == "Model[1]"
    assert readable(Opaque(pickled=b"", summary="ndarray", shown=[1, 2])) == [1, 2]


@given(VALUES)
def test_every_plain_value_is_read_as_json(value: Any) -> None:
    shown = readable(value)
    assert json.loads(json.dumps(shown)) == shown


def test_a_flat_configuration_has_a_name_for_each_leaf() -> None:
    ref = Ref(path=("m",), index=None, summary="Model")
    config = {"net": {"width": 3, "none": {}, "drop": []}, "layers": [1, (2, {"x": 3})], "m": ref}
    assert flatten(config) == {
        "net/width": 3,
        "net/none": {},
        "net/drop": [],
        "layers/0": 1,
        "layers/1/0": 2,
        "layers/1/1/x": 3,
        "m": ref,
    }
    assert flatten({}) == {}


def test_a_tag_names_the_varied_parameters() -> None:
    assert format_tag(0, {"lr": 0.617612, "kind": "a"}) == "0_kind=a,lr=0.6176"
    assert format_tag(12, {}) == "12"
    assert format_tag(0, {"train_loop_config/lr": 0.5}) == "0_lr=0.5"
    assert (
        format_tag(1, {"net/width": 16, "on": True, "x": None}) == "1_net_width=16,on=True,x=None"
    )
    assert format_tag(2, {"a": 1.5e-7, "b": 1e10, "c": -3.0}) == "2_a=1.5e-07,b=1e10,c=-3"
    assert format_tag(3, {"l": [16, 0.123456], "d": {"k": "v"}}) == "3_d=k_v,l=16_0.1235"
    assert format_tag(4, {"m": Ref(path=("m",), index=1, summary="Model[1]")}) == "4_m=Model_1"
    assert format_tag(6, {"s": {"b", 2, "a"}, "d": {1: 2}, "n": 10**5000}) == (
        "6_d=1_2,n=an_integer_of_16_610,s=2_a_b"
    )
    assert (
        format_tag(5, {"m": Opaque(pickled=b"", summary="Net"), "n": Model()}) == "5_m=Net,n=Model"
    )


def test_a_changed_tag_names_what_it_named_and_what_is_new_with_the_values_of_now() -> None:
    before = {"lr": 0.1, "batch": 32, "net": {"width": 8, "depth": 2}}
    now = {"lr": 0.25, "batch": 64, "net": {"width": 16, "depth": 2, "act": "relu"}}
    assert changed_tag("3_lr=0.1,net_width=8", 3, before, now) == (
        "3_lr=0.25,net_act=relu,net_width=16"
    )
    assert changed_tag("3", 3, {}, {"lr": 0.5}) == "3_lr=0.5"
    assert changed_tag("3", 3, before, before) == "3"


@given(st.integers(0, 10**9), st.dictionaries(st.text(max_size=50), VALUES, max_size=12))
def test_a_tag_is_short_and_safe_in_a_file_name(index: int, evaluated: dict[str, Any]) -> None:
    tag = format_tag(index, evaluated)
    assert len(tag) <= 100
    assert set(tag) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-=,")
    assert tag.startswith(str(index))


def test_a_long_tag_drops_whole_parameters_and_cuts_no_number() -> None:
    tag = format_tag(
        7, {f"group_{i}/learning_rate_of_the_{i}th_layer": 0.123456 for i in range(9)}
    )
    assert tag == ("7_learning_rate_of_the_0th_layer=0.1235,learning_rate_of_the_1th_layer=0.1235")
    assert format_tag(7, {"a": "x" * 50}) == "7_a=" + "x" * 20


def test_a_configuration_reads_by_attribute_and_by_key() -> None:
    spec = Spec({"lr": 0.1, "net": {"width": 3}, "layers": [{"n": 1}]}, [])
    assert spec.config.lr == spec.config["lr"] == spec["config"]["lr"] == spec["lr"] == spec.lr
    assert spec.config.net.width == spec["net"]["width"] == 3
    assert spec.layers[0].n == 1
    assert spec.get("depth", 5) == 5
    assert "lr" in spec
    assert len(spec) == 3
    assert list(spec.config) == ["lr", "net", "layers"]
    with pytest.raises(AttributeError, match="no 'depth' here, only 'lr', 'net', 'layers'"):
        _ = spec.config.depth
    assert repr(spec.net) == "ConfigView({'width': 3})"


def test_reading_what_is_not_drawn_yet_is_noted() -> None:
    missed: list[str] = []
    settings = ConfigView({"a": [Waiting(name="a/0")], "b": 1}, missed)
    assert settings.b == 1
    with pytest.raises(Unresolved):
        _ = settings.a
    assert missed == ["a/0"]
