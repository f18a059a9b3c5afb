"""Workers and ranks whose code writes to their own connection: messages are checked, and nonsense
fails only their trial, and never reaches a row."""

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
from holdfast.experiment.worker.session import running
from holdfast.train import DataParallelTrainer, ScalingConfig

RECORD = {"index": 0, "iteration": 2, "attempt": 1, "files": 1, "size_bytes": 1,
          "time_total_s": 1.0, "upload": "ASYNC"}  # fmt: skip
FAILURE = {"kind": "user", "type_name": "E", "message": "m", "traceback": "t", "hostname": "h"}
HUGE = 10**18


def report(**changed: Any) -> list[Any]:
    """The second report of the first attempt, with another value somewhere."""
    fields = {
        "attempt": 1, "iteration": 2, "metrics": {"n": 2}, "timestamp": 1e9, "this_s": 0.1,
        "total_s": 0.2, "checkpoint": None,
    }  # fmt: skip
    return ["report", *{**fields, **changed}.values()]


def record(**changed: Any) -> list[Any]:
    return report(checkpoint={**RECORD, **changed})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


LIES: dict[str, list[Any] | bytes] = {
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
    "an import that is no module": ["imported", ["os; import evil"], 1.0],
    "imports in text": ["imported", "os", 1.0],
    "an import that took a text": ["imported", ["os"], "soon"],
    "a frame of 4 GiB": b"\xff\xff\xff\xff",
    "what is no MessagePack": frame(b"\xc1"),
    "a message that is no list": frame(msgpack.packb({"report": 1})),
    "an empty list": frame(msgpack.packb([])),
    "text that is no UTF-8": frame(b"\x92\xa3log\xa1\xff"),
    "lists within lists": frame(b"\x91" * 100_000),
}
# By the rank that sends it.
OF_RANKS: dict[str, tuple[int, list[Any]]] = {
    "another iteration": (1, report(iteration=7)),
    "a part with a number": (1, report(checkpoint={**RECORD, "index": 5})),
    "a part of another iteration": (1, report(checkpoint={**RECORD, "iteration": 9})),
    "a second start with another pid": (1, ["started", 1, 1, "host", "127.0.0.1"]),
    "another attempt of the group": (1, report(attempt=9)),
    "a checkpoint that another rank has put together": (1, ["merged", RECORD, {}]),
    "clashes of ranks that there are not": (0, ["merged", RECORD, {"f": [7]}]),
    "clashes in text": (0, ["merged", RECORD, "none"]),
    "no reason": (0, ["merge_failed", 5]),
    "an address in control characters": (0, ["address", "\x1b[2J"]),
    "an address that is a number": (0, ["address", 5]),
    "an address for all in control characters": (1, ["gather", "\x1b[2J"]),
    "an address for all that is a number": (1, ["gather", 5]),
    "a list in place of a name": (1, [[], {}, None]),
}


def told(config: dict[str, Any]) -> None:
    """Two honest reports, or a lie in place of the second one."""
    tune.report({"n": 1})
    lie: Any = LIES.get(config["lie"])
    if config["lie"] in OF_RANKS:
        rank, lie = OF_RANKS[config["lie"]]
        if tune.get_context().get_world_rank() != rank:
            lie = None
    if lie is None:
        tune.report({"n": 2})
        return
    session = running()
    assert session is not None
    if isinstance(lie, bytes):
        os.write(session._transport.fileno(), lie)  # type: ignore[attr-defined]
    else:
        session._transport.send(lie)
    session._transport.receive()  # the answer, which never comes to a liar


@pytest.fixture(scope="module", params=["workers", "ranks"])
def results(
    request: pytest.FixtureRequest, shared_fit: Callable[..., tune.ResultGrid]
) -> tune.ResultGrid:
    """A run of liars, and of two who are honest."""
    has_ranks = request.param == "ranks"
    space = {"lie": tune.grid_search(["none", *(OF_RANKS if has_ranks else LIES), "none"])}
    if not has_ranks:
        return shared_fit(told, space, name=request.param)
    each = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}, trainer_resources={})
    trainer = DataParallelTrainer(told, scaling_config=each)
    return shared_fit(trainer, {"train_loop_config": space}, name=request.param)


def lie_of(result: tune.Result) -> str:
    assert result.config is not None
    name: str = result.config.get("train_loop_config", result.config)["lie"]
    return name


def test_each_lie_fails_its_own_trial_and_says_what_was_wrong(results: tune.ResultGrid) -> None:
    assert len(results) in (len(LIES) + 2, len(OF_RANKS) + 2)
    for result in results:
        assert result.metrics is not None
        name, text = lie_of(result), str(result.error)
        if name == "none":
            assert (result.error, result.metrics["n"]) == (None, 2)
            continue
        assert isinstance(result.error, tune.TuneError), name
        assert "sent an invalid message" in text or "its connection failed" in text, text
        assert "out of memory" not in text, text
        assert name not in OF_RANKS or f"rank {OF_RANKS[name][0]}" in text, text
        assert result.metrics["n"] == 1, name


def test_its_rows_and_its_journal_stay_readable(results: tune.ResultGrid) -> None:
    again = tune.Tuner.restore(results.experiment_path).get_results()
    assert [one.metrics["n"] for one in again if one.metrics] == [
        one.metrics["n"] for one in results if one.metrics
    ]
    analysis = tune.ExperimentAnalysis(results.experiment_path)
    assert set(analysis.dataframe()["timestamp"] < 2e10) == {True}
    assert len(analysis.trials) == len(results)


class Impostor:
    """Makes every process that starts from the reader claim to be process 1."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        true, here = os.getpid, os.getpid()
        os.getpid = lambda: here if true() == here else 1

    def __getstate__(self) -> dict[str, Any]:
        return {"": ""}


def test_a_pid_in_the_first_message_is_held_against_the_kernels(fit: Any) -> None:
    impostor = Impostor()

    def loop(config: dict[str, Any]) -> None:
        assert isinstance(impostor, Impostor)
        tune.report({"n": 1})

    result = fit(loop)[0]
    assert "but it reported 1" in str(result.error)
    assert result.metrics is None or "pid" not in result.metrics
    assert Path(result.path).is_dir()
