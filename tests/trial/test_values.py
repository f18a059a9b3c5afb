"""Values of configurations: plain, named, carried, folded back, flattened and tagged."""

import functools
import json
import math
from collections import OrderedDict, namedtuple
from enum import IntEnum
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.space import choice, grid_search, uniform
from holdfast.trial.values import (
    Opaque,
    Ref,
    Settings,
    Spec,
    Unresolved,
    Waiting,
    detach,
    flatten,
    fold_values,
    format_tag,
    from_plain,
    is_plain,
    key_name,
    seal,
    summarize,
    to_plain,
    unwrap_scalar,
)


class Model:
    """A value that is not plain."""


class Colour(IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")

REFS = st.builds(
    Ref,
    path=st.lists(st.text() | st.integers(0, 9), max_size=3).map(tuple),
    index=st.none() | st.integers(0, 9),
    summary=st.text(max_size=5),
)
OPAQUES = st.builds(Opaque, pickled=st.binary(max_size=9), summary=st.text(max_size=5))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
KEYS = st.text(max_size=5) | st.just("__holdfast__")
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | REFS | OPAQUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_configuration_comes_back_from_json_and_msgpack_as_it_was(value: Any) -> None:
    plain = to_plain(value)
    for copy in (json.loads(json.dumps(plain)), msgpack.unpackb(msgpack.packb(plain))):
        assert shape(from_plain(copy)) == shape(value)


def shape(value: Any) -> Any:
    """`value` with its types, for True equals 1 and 0.0 equals -0.0."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
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
    "value", [None, True, 1, -(2**63), 2**64 - 1, 0.5, math.nan, "é", b"", [], {"a": ({}, [1])}]
)
def test_plain_values_are_plain(value: object) -> None:
    assert is_plain(value)


@pytest.mark.parametrize(
    "value",
    [
        Model(),
        Model,
        len,
        2**64,
        -(2**63) - 1,
        "\udc80",
        {1: 2},
        {"\udc80": 2},
        {"a": [Model()]},
        {1, 2},
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


def test_numpy_scalars_become_python_values_and_arrays_stay() -> None:
    array, moment = np.zeros(()), np.datetime64("2026-01-01")
    for scalar, value in [(np.float64(0.5), 0.5), (np.int32(3), 3), (np.bool_(True), True)]:
        assert type(unwrap_scalar(scalar)) is type(value)
        assert unwrap_scalar(scalar) == value
    assert type(unwrap_scalar(np.str_("a"))) is str
    assert unwrap_scalar(array) is array
    assert unwrap_scalar(moment) is moment


def test_a_summary_never_shows_an_address() -> None:
    assert summarize(Model) == "Model"
    assert summarize(Model()) == "Model"
    assert summarize(Model(), 2) == "Model[2]"
    assert summarize(summarize, 2) == "summarize"
    assert summarize(functools.partial(len), 0) == "partial[0]"


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


def test_sealing_carries_only_what_is_not_plain() -> None:
    ref, carried = Ref(path=(), index=None, summary=""), Opaque(pickled=b"", summary="")
    config = {"a": [1, {2: 3}], "b": ref, "c": carried, "d": np.int64(4), "e": (Model,)}
    seen = []

    def pickled(path: tuple[str | int, ...], value: Any) -> Opaque:
        seen.append((key_name(path), value))
        return Opaque(pickled=b"p", summary=summarize(value))

    assert seal(config, pickled) == {
        "a": [1, Opaque(pickled=b"p", summary="dict")],
        "b": ref,
        "c": carried,
        "d": 4,
        "e": (Opaque(pickled=b"p", summary="Model"),),
    }
    assert seen == [("a/1", {2: 3}), ("e/0", Model)]


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
    assert (
        format_tag(1, {"net/width": 16, "on": True, "x": None}) == "1_net_width=16,on=True,x=None"
    )
    assert format_tag(2, {"a": 1.5e-7, "b": 1e10, "c": -3.0}) == "2_a=1.5e-07,b=1e10,c=-3"
    assert format_tag(3, {"l": [16, 0.123456], "d": {"k": "v"}}) == "3_d=k_v,l=16_0.1235"
    assert format_tag(4, {"m": Ref(path=("m",), index=1, summary="Model[1]")}) == "4_m=Model_1"
    assert (
        format_tag(5, {"m": Opaque(pickled=b"", summary="Net"), "n": Model()}) == "5_m=Net,n=Model"
    )


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
    assert repr(spec.net) == "Settings({'width': 3})"


def test_a_key_called_config_is_still_reached() -> None:
    spec = Spec({"config": {"lr": 1}}, [])
    assert spec["config"]["lr"] == spec.config["config"]["lr"] == spec.config.config.lr == 1


def test_reading_what_is_not_drawn_yet_is_noted() -> None:
    missed: list[str] = []
    settings = Settings({"a": [Waiting(name="a/0")], "b": 1}, missed)
    assert settings.b == 1
    with pytest.raises(Unresolved):
        _ = settings.a
    assert missed == ["a/0"]


def test_what_a_function_returned_is_detached_from_the_configuration() -> None:
    values = {"net": {"widths": [1, 2]}}
    detached = detach({"copy": Settings(values, []), "n": np.int64(3)})
    assert detached == {"copy": {"net": {"widths": [1, 2]}}, "n": 3}
    assert type(detached["copy"]["net"]) is dict
    assert detached["copy"]["net"]["widths"] is not values["net"]["widths"]
