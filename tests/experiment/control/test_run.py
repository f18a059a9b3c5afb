"""Orders of the thread of `fit()` to a run, at its first and its last moment."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.experiment.control import run as run_module
from holdfast.experiment.control.run import Run
from holdfast.experiment.control.services import Ending, Working
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.machine import Machine


class BareRun(Run):
    """A run without processes. Its work lasts until `may_end`, unless it is cut short."""

    def __init__(self, folder: Path) -> None:
        settings = SimpleNamespace(
            disk_deadline_s=0.0,
            stopped_deadline_s=0.0,
            flush_deadline_s=60.0,
            tracker_deadline_s=30.0,
        )
        plan: Any = SimpleNamespace(
            machine=Machine(),
            engine=None,
            job=SimpleNamespace(capture=False),
            environment=SimpleNamespace(working_dir=None),
            runs_trials=False,
            has_page=False,
            settings=settings,
            layout=SimpleNamespace(root=folder),
            lock=SimpleNamespace(check_ownership=lambda: None),
        )
        super().__init__(plan)
        self.may_end = threading.Event()

    def _start_parts(self, tasks: RunTasks) -> Working:
        parts: Any = SimpleNamespace(tasks=tasks)
        controller: Any = SimpleNamespace(fault=None, machine=self.machine)
        trackers: Any = None
        return Working(parts=parts, controller=controller, tracker_processes=trackers)

    async def _work(self, working: Working, job: bytes) -> None:
        await asyncio.to_thread(self.may_end.wait, 60)

    async def _end(self, ending: Ending) -> list[str]:
        self.may_end.set()
        return []


@pytest.mark.parametrize("order", ["interrupt", "abort"])
def test_an_order_to_end_that_comes_before_the_loop_runs_is_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """A Ctrl-C while the loop is being made: on a busy machine that takes long."""
    may_begin, make_loop = threading.Event(), run_module._new_loop

    def made_late() -> asyncio.AbstractEventLoop:
        assert may_begin.wait(60)
        return make_loop()

    monkeypatch.setattr(run_module, "_new_loop", made_late)
    run = BareRun(tmp_path)
    run.start()
    getattr(run, order)()
    may_begin.set()
    has_ended = run.wait(60)
    run.may_end.set()
    run.join()
    assert has_ended
    assert isinstance(run.fault, KeyboardInterrupt)


def test_an_order_that_comes_after_the_loop_has_ended_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended, may_return = threading.Event(), threading.Event()

    close = asyncio.Runner.close

    def close_slowly(runner: asyncio.Runner) -> None:
        close(runner)
        has_ended.set()
        assert may_return.wait(60)

    monkeypatch.setattr(asyncio.Runner, "close", close_slowly)
    run = BareRun(tmp_path)
    run.may_end.set()
    run.start()
    try:
        assert has_ended.wait(60)
        assert run.is_alive
        run.interrupt()
        run.abort()
    finally:
        may_return.set()
        run.join()
    assert run.fault is None
