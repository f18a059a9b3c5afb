"""The messages at the end of a run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.experiment.control import services as ending_module
from holdfast.experiment.control.services import Ending
from holdfast.runtime.process_exits import Watched
from holdfast.syncer.journal.journal import Position
from tests.rig.free_tasks import free_tasks

pytestmark = pytest.mark.anyio


async def nothing(*_: Any, **__: Any) -> None:
    """Is done at once."""


class Writer:
    """The journal of a projector that reports its progress and then its end."""

    position = Position()
    close = staticmethod(nothing)

    def __init__(self, *shares: tuple[int, int]) -> None:
        self.shares = shares

    async def finish(
        self, patience_s: float, progress: Callable[[int, int], None], *, is_patient: bool
    ) -> bool:
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
        user_code=SimpleNamespace(finish=nothing),
        machine=SimpleNamespace(ending=None, trials={}),
    )
    parts = SimpleNamespace(
        tasks=free_tasks(),
        launcher=SimpleNamespace(close=nothing),
        journal_writer=Writer((0, 8_000_000), (2_000_000, 8_000_000), (8_000_000, 8_000_000)),
        callbacks=nowhere,
    )
    working: Any = SimpleNamespace(
        parts=parts, controller=controller, tracker_processes=SimpleNamespace(close=nothing)
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
        "writing the remaining files",
        "writing result.json and similar files: 0% of the journal",
        "writing result.json and similar files: 25% of the journal",
        "writing result.json and similar files: 100% of the journal",
    ]


@pytest.fixture
def here() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        yield process


@pytest.fixture
def gone() -> subprocess.Popen[bytes]:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        return process


async def test_what_is_still_there_after_everything_was_killed_is_named(
    here: subprocess.Popen[bytes], gone: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes: one that hangs, and one that has ended."""
    monkeypatch.setattr(ending_module, "_KILLED_WITHIN_S", 0.01)
    hangs = asyncio.get_running_loop().create_future()

    async def never(*_: Any) -> None:
        await hangs

    nowhere = SimpleNamespace(close=lambda *_: None)
    parts = SimpleNamespace(
        tasks=free_tasks(),
        launcher=SimpleNamespace(close=never, kill=lambda: None),
        journal_writer=SimpleNamespace(
            hurry=lambda _: None, close=nothing, abandon_projector=never
        ),
        callbacks=nowhere,
    )
    working: Any = SimpleNamespace(
        parts=parts,
        controller=SimpleNamespace(
            fault=None,
            uploads=None,
            pool=nowhere,
            close=lambda: None,
            user_code=SimpleNamespace(finish=nothing),
            machine=SimpleNamespace(ending=None, trials={}),
        ),
        tracker_processes=SimpleNamespace(abandon=nothing),
        processes=lambda: [
            Watched(here.pid, "the projector", print),
            Watched(gone.pid, "the uploader", print),
        ],
    )
    settings = SimpleNamespace(flush_deadline_s=60.0, tracker_deadline_s=30.0)
    told: list[str] = []
    ending = Ending(
        SimpleNamespace(settings=settings),  # type: ignore[arg-type]
        working,
        lambda text, level: told.append(text),
        lambda phase: None,
    )
    assert await ending.kill() == []
    assert len(told) == 1
    assert told[0].startswith(f"the projector (pid {here.pid}) still exists after SIGKILL")
