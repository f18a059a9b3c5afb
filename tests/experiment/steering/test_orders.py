"""Orders are data from outside: each is what its table says, or is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiment.records.journal import pack, unpack
from holdfast.experiment.steering.orders import (
    AddConfig,
    AddTrials,
    InvalidOrder,
    LimitTrials,
    Order,
    PauseTrials,
    ResumeTrials,
    StopExperiment,
    StopTrials,
    WriteNote,
    decode,
    encode,
    via_of,
)
from holdfast.scheduler.events import ConfigAdded

ORDERS: dict[str, Order] = {
    "stop": StopTrials(trials=("d2a66_00000", "d2a66_00001")),
    "pause": PauseTrials(trials=("d2a66_00000",), now=True),
    "resume": ResumeTrials(trials=("d2a66_00000",)),
    "stop_experiment": StopExperiment(),
    "limit": LimitTrials(max_concurrent=4),
    "add_trials": AddTrials(count=5),
    "add_config": AddConfig(config={"lr": 0.1, "net": {"width": 3, "layers": [1, 2]}}),
    "note": WriteNote(trial="d2a66_00000", text="plateaus\nat 0.3 \N{SNOWMAN}"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_travels_as_a_table_with_its_name(name: str) -> None:
    plain = encode(ORDERS[name])
    assert plain["order"] == name
    assert decode(plain) == ORDERS[name]


def test_what_is_left_out_has_its_default_and_a_trial_counts_once() -> None:
    plain = {"order": "pause", "trials": ["d2a66_00001", "d2a66_00000", "d2a66_00001"]}
    assert decode(plain) == PauseTrials(trials=("d2a66_00001", "d2a66_00000"), now=False)
    assert decode({"order": "limit", "max_concurrent": None}) == LimitTrials(max_concurrent=None)


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        (None, "an order must be a table, not None"),
        ([], "an order must be a table, not a list of 0"),
        ({}, "there is no order None: the orders are stop, pause, resume, "),
        ({"order": "rm"}, "there is no order 'rm'"),
        ({"order": ["stop"]}, "there is no order a list of 1"),
        ({"order": "stop"}, "the order to stop trials: trials is missing"),
        ({"order": "stop", "trials": []}, "trials must be 1 to 10,000 ids, not 0"),
        ({"order": "stop", "trials": ["a"] * 10_001}, "trials must be 1 to 10,000 ids"),
        ({"order": "stop", "trials": "d2a66_00000"}, "trials must be a list"),
        ({"order": "stop", "trials": [7]}, "trials must be text, not 7"),
        ({"order": "stop", "trials": ["../../etc"]}, "it may hold no slash"),
        ({"order": "stop", "trials": ["\x1b[2J"]}, "has control characters"),
        ({"order": "stop", "trials": ["a" * 256]}, "has more than 255 bytes"),
        ({"order": "pause", "trials": ["a"], "now": "yes"}, "now must be true or false"),
        ({"order": "stop_experiment", "force": True}, "fields that this version"),
        ({"order": "limit"}, "max_concurrent is missing"),
        ({"order": "limit", "max_concurrent": 0}, "from 1 to 1,000,000, not 0"),
        ({"order": "limit", "max_concurrent": 1.5}, "a whole number"),
        ({"order": "add_trials", "count": -1}, "from 1 to 1,000,000, not -1"),
        ({"order": "add_trials", "count": True}, "a whole number"),
        ({"order": "add_trials", "count": 10**400}, "not an integer of"),
        ({"order": "add_config", "config": [1]}, "config must be a table"),
        ({"order": "add_config", "config": {1: 2}}, "config has the key 1, which is not text"),
        ({"order": "add_config", "config": {"a": {1, 2}}}, "which JSON cannot represent"),
        ({"order": "add_config", "config": {"a": [[]] * 10_000}}, "more than 10,000 values"),
        ({"order": "note", "trial": "a", "text": None}, "text must be text, not None"),
        ({"order": "note", "trial": "a", "text": "x" * 10_001}, "at most 10,000 fit"),
    ],
)
def test_anything_else_is_refused_with_its_field_and_value(plain: Any, told: str) -> None:
    with pytest.raises(InvalidOrder) as caught:
        decode(plain)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_config_that_is_nested_too_deeply_is_refused() -> None:
    config: Any = {}
    for _ in range(200):
        config = {"a": config}
    with pytest.raises(InvalidOrder, match="nested deeper"):
        decode({"order": "add_config", "config": config})


def test_a_mark_in_a_config_is_only_a_table_and_nothing_is_ever_unpickled() -> None:
    marked = {"lr": {"__holdfast__": "opaque", "base64": "gASVBQAAAAA=", "summary": "x"}}
    order = decode({"order": "add_config", "config": marked})
    assert isinstance(order, AddConfig)
    event = unpack(pack(ConfigAdded(config=order.config, by="ann (page)"), 1.0)).event
    assert isinstance(event, ConfigAdded)
    assert event.config == marked


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.text(), LEAVES, max_size=2)
FIELDS = st.sampled_from(["trials", "now", "max_concurrent", "count", "config", "trial", "text"])


@given(st.dictionaries(FIELDS, PLAIN, max_size=3), st.sampled_from([*ORDERS, "rm", None]))
def test_any_table_is_an_order_or_refused(fields: dict[str, Any], name: Any) -> None:
    try:
        order = decode({"order": name, **fields})
    except InvalidOrder:
        return
    assert decode(encode(order)) == order


@pytest.mark.parametrize("plain", [None, "", "Page", ["page"], b"page", 1])
def test_an_order_says_what_the_person_has_used(plain: Any) -> None:
    assert (via_of("page"), via_of("command")) == ("page", "command")
    with pytest.raises(InvalidOrder, match="an order comes from command or page, not "):
        via_of(plain)
