"""A run from inside: a Ctrl-C at its first and its last moment, a report after its attempt."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.control.watch import RunHandle
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.workers.pool import WorkerPool
from holdfast.scheduler.events import Raised
from holdfast.syncer.journal.journal import JournalFull
from holdfast.trial.errors import Failure, TuneError
from holdfast.trial.events import Reported


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


@pytest.mark.parametrize(("is_full", "expected"), [(False, ["reply"]), (True, ["refuse"])])
def test_a_report_of_an_attempt_that_is_over_is_answered_once_and_when_the_journal_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool, expected: list[str]
) -> None:
    answers: list[str] = []
    post, append = WorkerPool.post, JournalWriter.append

    def fail(writer: JournalWriter, records: list[bytes]) -> None:
        monkeypatch.setattr(JournalWriter, "append", append)
        assert answers == []
        if is_full:
            raise JournalFull("append", "the journal", "the disk is full")
        append(writer, records)

    def post_late(pool: WorkerPool, event: Any) -> None:
        if isinstance(event, Reported):
            failure = Failure(kind="stopper", type_name="Late", message="")
            post(pool, Raised(trial_id=event.trial_id, attempt=event.attempt, failure=failure))
            for name in ("reply", "refuse"):
                monkeypatch.setattr(WorkerPool, name, noting(name, getattr(WorkerPool, name)))
            monkeypatch.setattr(JournalWriter, "append", fail)
        post(pool, event)

    def noting(name: str, answer: Any) -> Any:
        def note(*args: Any) -> None:
            answers.append(name)
            answer(*args)

        return note

    monkeypatch.setattr(WorkerPool, "post", post_late)
    config = tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0)
    with pytest.raises(TuneError, match="disk is full") if is_full else nullcontext():
        tune.Tuner(trains, param_space={"mark": str(tmp_path / "mark")}, run_config=config).fit()
    assert answers == expected
