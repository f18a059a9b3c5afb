"""The controller's side of the keeper, over a keeper that writes down what it is told."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from holdfast.experiment.archive import BACKLOG, Archive
from holdfast.experiment.ledger import Ledger
from holdfast.runtime.lasting import LastingService
from holdfast.scheduler.events import Event
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.lifecycle import Committed
from holdfast.trial.trial import TrialSpec

pytestmark = pytest.mark.anyio


class FakeKeeper:
    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.sent: list[Any] = []

    def send(self, message: list[Any]) -> None:
        self.sent.append(message)


class Desk:
    def __init__(self) -> None:
        self.keeper = FakeKeeper()
        self.events: list[Event] = []
        self.lost: list[tuple[str, int, str]] = []
        self.archive = Archive(
            cast(LastingService, self.keeper),
            cast(Ledger, None),
            post=self.events.append,
            tell=lambda text: None,
            lost=lambda *facts: self.lost.append(facts),
            refused=lambda text: None,
            begins=0,
            is_remote=False,
            sync_period_s=300,
        )

    def commit(self, number: int) -> None:
        spec = TrialSpec(trial_id=f"t{number}", index=number, name="", dirname="", config={})
        record = CheckpointRecord(index=0, iteration=1, attempt=1, files=1, size_bytes=1)
        self.archive.commit(spec, record)


async def test_everybody_whom_back_pressure_held_is_answered() -> None:
    desk, answered = Desk(), []
    for number in range(3 * BACKLOG):
        desk.commit(number)
        if desk.archive.has_backlog:
            desk.archive.hold(lambda number=number: answered.append(number))  # type: ignore[misc]
    held = 2 * BACKLOG + 1
    assert answered == []
    for number in range(3 * BACKLOG):
        desk.archive.on_keeper(["committed", f"t{number}", 0])
    assert len(answered) == held
    assert len(desk.events) == 3 * BACKLOG


async def test_a_checkpoint_that_is_nowhere_is_waited_for_no_more() -> None:
    desk = Desk()
    desk.commit(0)
    desk.archive.on_keeper(["lost", "t0", 0, "it is gone"])
    assert desk.lost == [("t0", 0, "it is gone")]
    assert not any(isinstance(event, Committed) for event in desk.events)
    await desk.archive.drain(3600)
