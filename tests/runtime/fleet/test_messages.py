"""What an agent says is checked by type, range and name."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet import messages
from holdfast.runtime.launcher import ExitCause
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Decoder, encode

HELLO: dict[str, Any] = {
    "protocol": 1,
    "version": "0.1.0",
    "python": "3.11.7",
    "ticket": "agent-1",
    "token": b"t",
    "hostname": "n1",
    "address": "10.0.0.1",
    "pid": 7,
    "resources": {"CPU": 4.0, "GPU": 1, "memory": 1 << 35},
    "gpus": ["0"],
    "disk_free_bytes": 10,
}

ENDED = {"cause": "exited", "signum": 9, "is_out_of_memory": True}
PLAIN = {"wall_s": 2.0, "cpu_s": 1, "memory_bytes": 7, "gpu_utilisation": 0.5}
USED = Used(wall_s=2.0, cpu_s=1.0, memory_bytes=7, gpu_utilisation=0.5)
GOOD: list[tuple[list[Any], messages.FromAgent]] = [
    (["loaded", "a notice"], messages.Loaded(notice="a notice")),
    (["heartbeat", 5], messages.Heartbeat(disk_free_bytes=5)),
    (["from", "w", ["report", 1]], messages.FromWorker(worker="w", message=["report", 1])),
    (["pid", "w", 4711], messages.WorkerPid(worker="w", pid=4711)),
    (
        ["exit", "w", ENDED],
        messages.WorkerExit(
            worker="w", ending=ExitCause(cause="exited", signum=9, is_out_of_memory=True)
        ),
    ),
    (
        ["exit", "w", {**ENDED, "used": PLAIN}],
        messages.WorkerExit(
            worker="w",
            ending=ExitCause(cause="exited", signum=9, is_out_of_memory=True, used=USED),
        ),
    ),
    (["used", "w", PLAIN], messages.WorkerUsed(worker="w", used=USED)),
    (["answer", ["sealed", 1]], messages.Answer(message=["sealed", 1])),
    (["leaving", 30, "SIGTERM"], messages.Leaving(seconds=30.0, why="SIGTERM")),
    (["warned", "two\nlines"], messages.Warned(text="two\nlines")),
    (
        ["unloadable", "E", "m", "Traceback\n"],
        messages.Unloadable(type_name="E", message="m", traceback="Traceback\n"),
    ),
]

BAD: list[list[Any]] = [
    ["root"],
    ["heartbeat"],
    ["heartbeat", -1],
    ["heartbeat", True],
    ["heartbeat", 1.5],
    ["heartbeat", 1 << 80],
    ["loaded", 5],
    ["from", "w", "text"],
    ["from", "w", []],
    ["from", 1, ["report"]],
    ["from", "w" * 5000, ["report"]],
    ["pid", "w", 0],
    ["pid", "w", 1],
    ["pid", "w", -1],
    ["pid", "w", "7"],
    ["exit", "w", {}],
    ["exit", "w", {"cause": "x", "signum": -1, "is_out_of_memory": False}],
    ["exit", "w", {"cause": 1, "signum": 0, "is_out_of_memory": False}],
    ["exit", "w", "exited"],
    ["exit", "w", {**ENDED, "used": [2.0, 1, 7]}],
    ["used", "w", {**PLAIN, "memory_bytes": -7}],
    ["used", "w", {**PLAIN, "gpu_utilisation": 2.5}],
    ["leaving", math.nan, "x"],
    ["leaving", math.inf, "x"],
    ["leaving", -1, "x"],
    ["leaving", 1, "\x1b[2J"],
    ["unloadable", "E", "m"],
]


@pytest.mark.parametrize(("message", "claim"), GOOD, ids=lambda value: str(value)[:30])
def test_a_message_of_an_agent_is_a_claim(message: list[Any], claim: messages.FromAgent) -> None:
    assert messages.read(message) == claim


@pytest.mark.parametrize("message", BAD, ids=lambda value: repr(value)[:40])
def test_any_other_message_is_refused(message: list[Any]) -> None:
    with pytest.raises(WireError):
        messages.read(message)


def test_a_hello_tells_who_and_where_the_agent_is() -> None:
    hello = messages.read_hello(["hello", HELLO])
    assert (hello.hostname, hello.ticket, hello.gpus) == ("n1", "agent-1", ("0",))
    assert hello.resources == {"CPU": 4.0, "GPU": 1.0, "memory": float(1 << 35)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("protocol", "1"),
        ("token", "text"),
        ("hostname", "n1\n"),
        ("address", 5),
        ("pid", -1),
        ("resources", {"CPU": -1.0}),
        ("resources", {"CPU": math.nan}),
        ("resources", {"../CPU": 1.0}),
        ("resources", [1]),
        ("resources", {"CPU": 1e18}),
        ("resources", {"GPU": 1e18}),
        ("resources", {"GPU": 0.5}),
        ("gpus", ["/dev/0"]),
        ("gpus", "0"),
        ("gpus", ["0"] * 5000),
        ("disk_free_bytes", None),
    ],
)
def test_a_hello_with_a_wrong_field_is_refused_and_the_field_named(
    field: str, value: object
) -> None:
    with pytest.raises(WireError) as caught:
        messages.read_hello(["hello", {**HELLO, field: value}])
    names = {"resources": "resource|amount", "gpus": "gpu"}.get(field, field)
    assert any(name in str(caught.value) for name in names.split("|"))


@pytest.mark.parametrize(
    "message", [["hello"], ["hello", []], ["pid", "w", 5], ["hello", HELLO, 1]]
)
def test_only_a_hello_is_a_hello(message: list[Any]) -> None:
    with pytest.raises(WireError, match="not a hello"):
        messages.read_hello(message)


# What MessagePack can bring besides plain values, and what takes the most room or depth.
STRANGE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.floats(),
        st.text(max_size=20),
        st.binary(max_size=20),
        st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=8)),
        st.builds(msgpack.Timestamp, st.integers(-(1 << 40), 1 << 40), st.integers(0, 10**9 - 1)),
    ),
    lambda part: st.one_of(
        st.lists(part, max_size=4), st.dictionaries(st.text(max_size=5), part, max_size=4)
    ),
    max_leaves=10,
)


@given(st.sampled_from([message[0] for message, _ in GOOD]), st.lists(STRANGE, max_size=4))
def test_any_message_is_a_claim_or_refused(name: str, parts: list[Any]) -> None:
    (message,) = Decoder().feed(encode([name, *parts]))
    with suppress(WireError):
        messages.read(message)


@given(st.sampled_from([*HELLO]), STRANGE)
def test_any_hello_is_one_or_refused(field: str, value: Any) -> None:
    (message,) = Decoder().feed(encode(["hello", {**HELLO, field: value}]))
    with suppress(WireError):
        messages.read_hello(message)


@pytest.mark.parametrize("depth", [100, 1000, 60_000])
def test_a_message_of_any_depth_is_refused_or_a_claim(depth: int) -> None:
    body = b"\x93\xa4from\xa1w" + b"\x91" * depth + b"\xa1x"
    with suppress(WireError):
        (message,) = Decoder().feed(len(body).to_bytes(4, "big") + body)
        messages.read(message)
