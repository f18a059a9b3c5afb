"""Ranks that validate a checkpoint, wait at a barrier, or ask for checkpoints or machines."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.experiment.workers import group as worker_group
from holdfast.experiment.workers.group import WorkerGroup
from holdfast.scheduler.effects import Verdict
from holdfast.scheduler.events import Raised
from holdfast.trial.events import Reported
from holdfast.trial.trial import Validation
from tests.experiment.workers.ranks import WHOLE, Desk
from tests.experiment.workers.ranks import group as group
from tests.experiment.workers.ranks import host as host

pytestmark = pytest.mark.anyio


async def test_the_metrics_of_a_validation_are_in_the_row_and_with_the_checkpoint(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[1].reports(1, loss=2)
    host.ranks[0].reports(1, files=True, loss=1)
    host.ranks[0].says(["validated", "VALIDATED", {"accuracy": 3}])
    host.ranks[0].says(["merged", WHOLE, {}])
    reported = host.events[-1]
    assert isinstance(reported, Reported)
    assert reported.checkpoint is not None
    assert reported.metrics == reported.checkpoint.metrics == {"loss": 1, "accuracy": 3}
    assert reported.checkpoint.validation is Validation.VALIDATED
    group.reply(Verdict.CONTINUE)
    for rank in host.ranks:
        rank.reports(2, loss=3)
    reported = host.events[-1]
    assert isinstance(reported, Reported)
    assert reported.metrics == {"loss": 3}


@pytest.mark.parametrize(
    "message",
    [
        ["validated", "GREAT", {}],
        ["validated", "NONE", {}],
        ["validated", "VALIDATED", [1]],
        ["validated", "VALIDATED", {"a": object()}],
    ],
)
async def test_a_validation_that_no_worker_of_holdfast_sends_ends_that_rank(
    host: Desk, group: WorkerGroup, message: list[Any]
) -> None:
    host.ranks[1].reports(1)
    host.ranks[0].reports(1, files=True)
    host.ranks[0].says(message)
    assert host.ranks[0].signals == [signal.SIGKILL]


async def test_a_validation_without_a_checkpoint_ends_that_rank(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[0].says(["validated", "VALIDATED", {}])
    assert host.ranks[0].signals == [signal.SIGKILL]


async def test_a_rank_gets_the_trials_checkpoints_with_their_metrics(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[1].says(["reported"])
    assert host.ranks[1].orders == [["reported", [["checkpoint_000003", {"loss": 0.5}, "NONE"]]]]
    assert host.ranks[0].orders == []


@pytest.mark.parametrize(
    ("first", "then", "who", "fact"),
    [
        (
            lambda ranks: ranks[0].says(["gather", ""]),
            lambda ranks: ranks[1].reports(1),
            1,
            "rank 1 is at report() while rank 0 waits at a barrier",
        ),
        (
            lambda ranks: ranks[1].reports(1),
            lambda ranks: ranks[0].says(["gather", ""]),
            0,
            "rank 0 is at a barrier while rank 1 waits at report()",
        ),
        (
            lambda ranks: ranks[0].says(["gather", ""]),
            lambda ranks: ranks[1].says(["returned", 1]),
            1,
            "rank 1 is at its end while rank 0 waits at a barrier",
        ),
        (
            lambda ranks: ranks[1].says(["returned", 1]),
            lambda ranks: ranks[0].says(["gather", ""]),
            1,
            "rank 1 is at its end while rank 0 waits at a barrier",
        ),
    ],
)
async def test_ranks_that_can_never_meet_at_a_barrier_end_the_attempt(
    host: Desk,
    group: WorkerGroup,
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[Any], None],
    then: Callable[[Any], None],
    who: int,
    fact: str,
) -> None:
    monkeypatch.setattr(worker_group, "AFTERMATH_S", 0.0)
    first(host.ranks)
    then(host.ranks)
    await host.ranks[0].signalled.wait()
    (raised,) = (event for event in host.events if isinstance(event, Raised))
    assert fact in raised.failure.message
    assert raised.failure.rank == who


async def test_a_rank_gets_the_machines_of_the_run(host: Desk, group: WorkerGroup) -> None:
    host.ranks[1].says(["machines"])
    told = ["a", "host-a", "10.0.0.1", {"CPU": 4}, {"CPU": 1}]
    assert host.ranks[1].orders == [["machines", [told]]]
