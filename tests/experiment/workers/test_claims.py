"""Every message of a worker is a valid one, or a ValueError that names the field."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import pytest

from holdfast.experiment.workers import claims
from holdfast.experiment.workers.claims import AttemptOver, AttemptRaised, WorkerReport
from holdfast.trial.errors import Failure
from holdfast.trial.trial import CheckpointRecord, CheckpointUploadMode

CHECKPOINT = CheckpointRecord(
    index=3, iteration=7, attempt=1, files=2, size_bytes=4096, upload=CheckpointUploadMode.SYNC
)
FAILURE = Failure(kind="user", type_name="ValueError", message="bad", traceback="...", pid=41)
MESSAGES: list[list[Any]] = [
    ["started", 1, 41, "host", "127.0.0.1"],
    ["report", 1, 7, {"loss": 0.25, "net": {"depth": [1, 2]}}, 1.7e9, 0.5, 3.5, None],
    ["report", 1, 7, {"loss": 0.25}, 1.7e9, 0.5, 3.5, asdict(CHECKPOINT)],
    ["saved", 1, asdict(CHECKPOINT)],
    ["log", "stdout", "one\ntwo"],
    ["returned", 1],
    ["stopped", 1],
    ["preempted", 1],
    ["unfit", 1],
    ["raised", 1, asdict(FAILURE)],
]
ODD: list[Any] = [
    *(None, True, -1, 1 << 70, 1e308, math.nan, math.inf, "", "\x1b[2J", b"x"),
    *([], [1], [[]], {}, {"x": 1}, {1: 1}, {"x": object()}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[0])
def test_a_message_has_its_fields_in_order(message: list[Any]) -> None:
    said = claims.MESSAGES.read(message)
    first, second, *_ = (getattr(said, name) for name in type(said).__dataclass_fields__)
    assert [first, second] == message[:2]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[0])
def test_whatever_stands_in_a_field_it_is_read_or_refused(message: list[Any]) -> None:
    for at in range(1, len(message)):
        for odd in ODD:
            with suppress(ValueError):
                claims.MESSAGES.read([*message[:at], odd, *message[at + 1 :]])
    for other in (message[:-1], [*message, 1]):
        with pytest.raises(ValueError, match="must be a list of"):
            claims.MESSAGES.read(other)


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (1, "1", "attempt must be a whole number"),
        (2, -1, "iteration must be a whole number from 0"),
        (3, [1], "metrics must be a dict"),
        (3, {1: 2}, "a key of metrics must be text"),
        (4, math.nan, "timestamp must be a number from 0"),
        (4, 1e300, "timestamp must be a number from 0"),
        (5, -0.5, "time_this_iter_s must be a number from 0"),
        (6, math.inf, "time_total_s must be a number from 0"),
        (7, 5, "CheckpointRecord must be a table"),
        (7, asdict(CHECKPOINT) | {"upload": "LATER"}, "upload must be one of ASYNC, SYNC"),
        (7, asdict(CHECKPOINT) | {"files": -1}, "files must be a whole number"),
        (7, {"index": 3}, "CheckpointRecord: iteration is missing"),
    ],
)
def test_what_no_worker_reports_is_refused_by_the_name_of_its_field(
    at: int, value: Any, told: str
) -> None:
    message = [*MESSAGES[1]]
    message[at] = value
    with pytest.raises(ValueError, match=told):
        claims.MESSAGES.read(message)


@pytest.mark.parametrize("name", ["retired", "", "Report"])
def test_a_message_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown"):
        claims.MESSAGES.read([name, 1])


@pytest.mark.parametrize("kind", ["lost", "memory", "stopper", "checkpoint", "gone", None])
def test_a_worker_tells_only_of_failures_of_code(kind: Any) -> None:
    with pytest.raises(ValueError, match="kind must be one of user, setup"):
        claims.MESSAGES.read(["raised", 1, asdict(FAILURE) | {"kind": kind}])


def test_a_stream_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="stream must be one of stdout, stderr, not 'stdin'"):
        claims.MESSAGES.read(["log", "stdin", "x"])


def test_the_controllers_pid_and_node_count_and_long_text_is_shortened() -> None:
    plain = asdict(FAILURE) | {"pid": -7, "node": ["mine"], "message": "x" * 1_000_000}
    said = claims.MESSAGES.read(["raised", 1, plain])
    assert isinstance(said, AttemptRaised)
    known = claims.failure(said.failure, pid=99, node="a")
    assert (known.pid, known.node) == (99, "a")
    assert len(known.message) < 1 << 17
    assert replace(known, message="bad", pid=41, node="") == FAILURE


def test_what_only_the_controller_says_of_a_checkpoint_is_not_taken_from_a_worker() -> None:
    plain = asdict(CHECKPOINT) | {"score": 9.0, "committed": True}
    said = claims.MESSAGES.read(["report", 1, 7, {}, 1.7e9, 0.5, 3.5, plain])
    assert isinstance(said, WorkerReport)
    assert said.checkpoint is not None
    assert claims.record(said.checkpoint, attempt=1, iteration=7, least_index=3) == CHECKPOINT


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        ({"attempt": 2}, "the checkpoint's attempt must be 2, not 1"),
        ({"iteration": 8}, "the checkpoint's iteration must be 8, not 7"),
        ({"least_index": 4}, "index must be from 4 to 100004, not 3"),
    ],
)
def test_a_checkpoint_of_another_report_is_refused(expected: dict[str, Any], told: str) -> None:
    report: dict[str, Any] = {"attempt": 1, "iteration": 7, "least_index": 3}
    with pytest.raises(ValueError, match=told):
        claims.record(CHECKPOINT, **report | expected)


def test_an_end_says_how() -> None:
    assert claims.MESSAGES.read(["preempted", 2]) == AttemptOver(name="preempted", attempt=2)
