"""The end of a run: what is shown of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.experiment.control.ending import Ending
from holdfast.syncer.journal.journal import Position

pytestmark = pytest.mark.anyio


async def nothing(*_: Any) -> None:
    """It is done at once."""


class Writer:
    """The journal of a projector that says how far it is, and then that it is done."""

    position = Position()
    close = staticmethod(nothing)

    def __init__(self, *shares: tuple[int, int]) -> None:
        self.shares = shares

    async def finish(self, patience_s: float, progress: Callable[[int, int], None]) -> bool:
        for done, total in self.shares:
            progress(done, total)
            await asyncio.sleep(0)
        return True


async def test_the_end_shows_how_much_of_the_journal_the_trials_files_have() -> None:
    nowhere = SimpleNamespace(close=lambda *_: None)
    controller = SimpleNamespace(
        fault=None,
        uploads=None,
        pool=nowhere,
        close=lambda: None,
        search_told=nothing,
        machine=SimpleNamespace(ending=None, trials={}),
    )
    working: Any = SimpleNamespace(
        launcher=SimpleNamespace(close=nothing),
        journal_writer=Writer((0, 8_000_000), (2_000_000, 8_000_000), (8_000_000, 8_000_000)),
        controller=controller,
        callbacks=nowhere,
        tracker_processes=SimpleNamespace(close=nothing),
    )
    settings = SimpleNamespace(
        flush_deadline_s=60.0, tracker_deadline_s=30.0, callback_deadline_s=10.0
    )
    plan: Any = SimpleNamespace(settings=settings, remote=None)
    phases: list[str] = []
    ending = Ending(plan, working, lambda text, level: None, phases.append)
    assert await ending.finish() == []
    assert phases == [
        "ending the worker processes",
        "writing what is left to be written",
        "writing result.json and the like: 0% of the journal",
        "writing result.json and the like: 25% of the journal",
        "writing result.json and the like: 100% of the journal",
    ]
