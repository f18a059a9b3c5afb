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
from holdfast.experiment.control.watch import RunHandle


def trains(config: dict[str, Any]) -> None:
    Path(config["mark"]).touch()
    tune.report({"loss": 1.0})


@pytest.mark.parametrize("moment", ["before the loop runs", "after it has ended"])
def test_a_ctrl_c_is_obeyed_before_the_loop_runs_and_after_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """On a busy machine, both take long."""
    is_ordered = threading.Event()
    interrupt, run, close = RunHandle.interrupt, asyncio.Runner.run, asyncio.Runner.close

    def note(handle: RunHandle, *, preempted: bool = False) -> None:
        interrupt(handle, preempted=preempted)
        is_ordered.set()

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert is_ordered.wait(60)

    def run_late(runner: asyncio.Runner, work: Any) -> Any:
        press()
        return run(runner, work)

    def closed_early(runner: asyncio.Runner) -> None:
        close(runner)
        press()

    monkeypatch.setattr(RunHandle, "interrupt", note)
    if moment == "before the loop runs":
        monkeypatch.setattr(asyncio.Runner, "run", run_late)
    else:
        monkeypatch.setattr(asyncio.Runner, "close", closed_early)
    config = tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0)
    mark = tmp_path / "mark"
    with pytest.raises(KeyboardInterrupt):
        tune.Tuner(trains, param_space={"mark": str(mark)}, run_config=config).fit()
    assert mark.exists() is (moment == "after it has ended")
