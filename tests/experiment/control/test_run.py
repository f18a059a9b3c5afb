"""A Ctrl-C at the first and at the last moment of a run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.control import run as run_module
from holdfast.experiment.control.run import Run


def trains(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


@pytest.mark.parametrize("moment", ["before the loop runs", "after it has ended"])
def test_a_ctrl_c_is_obeyed_while_the_loop_is_made_and_after_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """On a busy machine, both take long."""
    is_ordered = threading.Event()
    interrupt, make_loop, close = Run.interrupt, run_module._new_loop, asyncio.Runner.close

    def note(run: Run, *, preempted: bool = False) -> None:
        interrupt(run, preempted=preempted)
        is_ordered.set()

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert is_ordered.wait(60)

    def made_late() -> asyncio.AbstractEventLoop:
        press()
        return make_loop()

    def closed_early(runner: asyncio.Runner) -> None:
        close(runner)
        press()

    monkeypatch.setattr(Run, "interrupt", note)
    if moment == "before the loop runs":
        monkeypatch.setattr(run_module, "_new_loop", made_late)
    else:
        monkeypatch.setattr(asyncio.Runner, "close", closed_early)
    config = tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0)
    with pytest.raises(KeyboardInterrupt):
        tune.Tuner(trains, run_config=config).fit()
