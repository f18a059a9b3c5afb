"""Workers whose code writes to their own connection: messages are checked, and nonsense fails only
their trial."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from holdfast import tune
from tests.fit.faults.liar import RECORD, own_session, refusal, report

FAILURE = {"kind": "user", "type_name": "E", "message": "m", "traceback": "t", "hostname": "h"}
HUGE = 10**18


def record(**changed: Any) -> list[Any]:
    return report(checkpoint={**RECORD, **changed})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


LIES: dict[str, list[Any]] = {
    "a timestamp that is NaN": report(timestamp=math.nan),
    "an infinite timestamp": report(timestamp=math.inf),
    "a huge timestamp": report(timestamp=1e300),
    "a timestamp before 1970": report(timestamp=-1.0),
    "a timestamp in text": report(timestamp="1e9"),
    "a timestamp of True": report(timestamp=True),
    "a time that is NaN": report(this_s=math.nan),
    "a negative time": report(this_s=-1.0),
    "an infinite total": report(total_s=math.inf),
    "no total": report(total_s=None),
    "the iteration before": report(iteration=1),
    "an iteration too far": report(iteration=3),
    "a huge iteration": report(iteration=HUGE),
    "an iteration that is a float": report(iteration=2.0),
    "another attempt": report(attempt=7),
    "an attempt in text": report(attempt="1"),
    "metrics in a list": report(metrics=[1]),
    "no metrics": report(metrics=None),
    "metrics with bytes as a key": report(metrics={b"n": 1}),
    "metrics with numbers as keys": report(metrics={1: 2}),
    "inner keys that are numbers": report(metrics={"n": {1: 2}}),
    "metrics that are bytes": report(metrics={"n": b"x"}),
    "a moment of MessagePack": report(metrics={"n": msgpack.Timestamp(1)}),
    "an extension of MessagePack": report(metrics={"n": msgpack.ExtType(5, b"x")}),
    "metrics nested without end": report(metrics={"n": nested(200)}),
    "a checkpoint without fields": report(checkpoint={}),
    "a checkpoint in text": report(checkpoint="checkpoint_000000"),
    "a negative index": record(index=-1),
    "an index far ahead": record(index=HUGE),
    "an index that is a path": record(index="../../victim"),
    "a checkpoint of another iteration": record(iteration=9),
    "a checkpoint of another attempt": record(attempt=2),
    "fewer than no files": record(files=-1),
    "a negative size": record(size_bytes=-5),
    "a size that is NaN": record(size_bytes=math.nan),
    "a checkpoint's time that is NaN": record(time_total_s=math.nan),
    "another way to upload": record(upload="LATER"),
    "a way to upload in a list": record(upload=["ASYNC"]),
    "a second start": ["started", 1, os.getpid(), "host", "127.0.0.1"],
    "the start of init": ["started", 1, 1, "host", "127.0.0.1"],
    "a failure in text": ["raised", 1, "m"],
    "a failure of no kind": ["raised", 1, {**FAILURE, "kind": "memory"}],
    "a failure with no text": ["raised", 1, {**FAILURE, "message": 5}],
    "a failure of another attempt": ["raised", 3, FAILURE],
    "a name in control characters": ["raised", 1, {**FAILURE, "type_name": "\x1b[2J"}],
    "a return of another attempt": ["returned", 9],
    "a return of none": ["returned"],
    "what only a rank says": ["merged", RECORD, {}],
    "lines of another stream": ["log", "stdlog", "x"],
    "lines that are numbers": ["log", "stdout", 5],
    "fewer than no unread lines": ["unread", -1],
    "unread lines in a float": ["unread", 1.5],
    "a message of no name": ["whatever", 1],
}


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


BYTES: dict[str, bytes] = {
    "a frame of 4 GiB": b"\xff\xff\xff\xff",
    "what is no MessagePack": frame(b"\xc1"),
    "a message that is no list": frame(msgpack.packb({"report": 1})),
    "an empty list": frame(msgpack.packb([])),
    "text that is no UTF-8": frame(b"\x92\xa3log\xa1\xff"),
    "lists within lists": frame(b"\x91" * 100_000),
}


def lie(config: dict[str, Any]) -> None:
    tune.report({"n": 1})
    session = own_session()
    if config["lie"] == "none":
        tune.report({"n": 2})
    elif config["lie"] in BYTES:
        os.write(session._transport.fileno(), BYTES[config["lie"]])  # type: ignore[attr-defined]
    else:
        session._transport.send(LIES[config["lie"]])
    session._transport.receive()  # the answer, which never comes to a liar


def honest(config: dict[str, Any]) -> None:
    tune.report({"n": 1})
    tune.report({"n": 2})


def told(config: dict[str, Any]) -> None:
    honest(config) if config["lie"] == "none" else lie(config)


@pytest.fixture(scope="module")
def results(shared_fit: Callable[..., tune.ResultGrid]) -> tune.ResultGrid:
    lies = ["none", *LIES, *BYTES, "none"]
    return shared_fit(told, {"lie": tune.grid_search(lies)}, name="liars")


def test_each_lie_fails_its_own_trial_and_says_what_was_wrong(results: tune.ResultGrid) -> None:
    assert len(results) == len(LIES) + len(BYTES) + 2
    for result in results:
        assert result.config is not None
        assert result.metrics is not None
        name = result.config["lie"]
        if name == "none":
            assert result.error is None
            assert result.metrics["n"] == 2
            continue
        text = refusal(result, name)
        assert "out of memory" not in text, text


def test_nothing_of_it_is_in_the_journal(results: tune.ResultGrid) -> None:
    again = tune.Tuner.restore(results.experiment_path, told).get_results()
    frame = again.get_dataframe()
    assert set(frame["timestamp"] < 2e10) == {True}
    analysis = tune.ExperimentAnalysis(results.experiment_path)
    assert len(analysis.trials) == len(results)
    assert Path(results.experiment_path, "journal").is_dir()
