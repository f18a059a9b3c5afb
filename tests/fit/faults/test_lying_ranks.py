"""Ranks whose code writes to their own connection: nonsense fails only their trial, and never
reaches a row."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train import DataParallelTrainer, ScalingConfig
from tests.fit.faults.liar import RECORD, own_session, refusal, report

NAN, INF, HUGE = float("nan"), float("inf"), 10**18


# By the rank that sends it.
LIES: dict[str, tuple[int, list[Any]]] = {
    "another iteration": (1, report(iteration=7)),
    "a huge iteration": (1, report(iteration=HUGE)),
    "an iteration in text": (1, report(iteration="2")),
    "a timestamp that is NaN": (1, report(timestamp=NAN)),
    "an infinite timestamp of the first": (0, report(timestamp=INF)),
    "a time that is NaN": (1, report(total_s=NAN)),
    "metric keys that are numbers": (1, report(metrics={1: 2})),
    "metric keys that are bytes": (0, report(metrics={b"n": 2})),
    "a part with a number": (1, report(checkpoint={**RECORD, "index": 5})),
    "a part of another iteration": (1, report(checkpoint={**RECORD, "iteration": 9})),
    "a second start with another pid": (1, ["started", 1, 1, "host", "127.0.0.1"]),
    "another attempt": (1, report(attempt=9)),
    "a checkpoint that another rank has put together": (1, ["merged", RECORD, {}]),
    "clashes of ranks that there are not": (0, ["merged", RECORD, {"f": [7]}]),
    "clashes in text": (0, ["merged", RECORD, "none"]),
    "no reason": (0, ["merge_failed", 5]),
    "an address in control characters": (0, ["meeting", "\x1b[2J"]),
    "an address that is a number": (0, ["meeting", 5]),
    "an address for all in control characters": (1, ["gather", "\x1b[2J"]),
    "an address for all that is a number": (1, ["gather", 5]),
    "a list in place of a name": (1, [[], {}, None]),
}


def told(config: dict[str, Any]) -> None:
    train.report({"n": 1})
    rank, lie = LIES.get(config["lie"], (-1, []))
    if train.get_context().get_world_rank() != rank:
        train.report({"n": 2})
        return
    transport = own_session()._transport
    transport.send(lie)
    transport.receive()  # the answer, which never comes to a liar


@pytest.fixture(scope="module")
def results(shared_fit: Callable[..., tune.ResultGrid]) -> tune.ResultGrid:
    each = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}, trainer_resources={})
    trainer = DataParallelTrainer(told, scaling_config=each)
    lies = ["none", *LIES, "none"]
    space = {"train_loop_config": {"lie": tune.grid_search(lies)}}
    return shared_fit(trainer, space, name="lying-ranks")


def test_a_lie_of_a_rank_fails_its_own_trial_and_says_what_was_wrong(
    results: tune.ResultGrid,
) -> None:
    assert len(results) == len(LIES) + 2
    for result in results:
        assert result.config is not None
        assert result.metrics is not None
        name = result.config["train_loop_config"]["lie"]
        if name == "none":
            assert result.error is None
            assert result.metrics["n"] == 2
            continue
        text = refusal(result, name)
        assert f"rank {LIES[name][0]}" in text, text


def test_its_rows_and_its_journal_stay_readable(results: tune.ResultGrid) -> None:
    frame = tune.ExperimentAnalysis(results.experiment_path).dataframe()
    assert set(frame["timestamp"] < 2e10) == {True}
    again = tune.Tuner.restore(results.experiment_path).get_results()
    assert [one.metrics["n"] for one in again if one.metrics] == [
        one.metrics["n"] for one in results if one.metrics
    ]


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
