"""The deadline of a tracker at the end of a run: it begins when its service is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.trackers.delivery import TrackerJob
from holdfast.experiment.trackers.supervisor import TrackerProcesses
from holdfast.runtime import service
from holdfast.runtime.usage.used import Stat
from holdfast.runtime.wire import Message
from holdfast.syncer.journal.journal import Position
from holdfast.trial.trial import Status, Trial, TrialSpec
from tests.rig.free_tasks import free_tasks

pytestmark = pytest.mark.anyio

SPEC = TrialSpec(trial_id="a_0", index=0, name="train_a_0", dirname="d", config={})
TRIAL = Trial(spec=SPEC, status=Status.TERMINATED, attempt=1, iteration=8)
DEADLINE_S = 0.05


class Process:
    """A tracker process. `works` are the CPU times that it shows, one at each look; then it
    answers, and has delivered everything, unless it `hangs`."""

    pid, is_gone = 1, False

    def __init__(self, works: list[float], *, hangs: bool = False) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.deadlines: list[float] = []
        self._looks: Iterator[float] = iter(works)
        self._hangs = hangs
        self._on_message: Callable[[Message], None] = lambda message: None

    def start(self, on_message: Callable[[Message], None]) -> Any:
        self._on_message = on_message
        return self

    def seen(self, pid: int) -> Stat:
        used_s = next(self._looks, None)
        if used_s is None and not self._hangs:
            self._on_message(["answered"])
        return Stat(1, 1e9 if used_s is None else used_s, 0)

    def send(self, message: list[Any]) -> None:
        if message[0] == "close":
            self.deadlines.append(message[1])
            if len(self.deadlines) > 1 and not self._hangs:
                self._on_message(["done", True])

    async def gone(self) -> str:
        return await self.ended

    async def close(self) -> str:
        self.kill()
        return ""

    def kill(self, why: str = "") -> None:
        if not self.ended.done():
            self.ended.set_result("")


async def closed(
    process: Process, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_patient: bool = True
) -> list[str]:
    """The messages about the end of this process."""
    monkeypatch.setattr(service, "process_of", process.seen)
    monkeypatch.setattr("holdfast.experiment.trackers.supervisor._ANSWER_S", 0.0)
    job = TrackerJob(
        root=str(folder),
        experiment_id="e",
        trainable="t",
        experiment_path="",
        begins=0,
        name="MLflowLoggerCallback",
        file="M",
        target="sqlite:///mlflow.db",
        resume_command="holdfast resume here",
    )
    said: list[str] = []

    def tell(text: str, level: str = "warning") -> None:
        said.append(text)

    processes = TrackerProcesses(
        [job],
        process.start,
        tell,
        refuse=lambda text: None,
        tasks=free_tasks(),
    )
    processes.open()
    await processes.close(Position(0), DEADLINE_S, [TRIAL], is_patient=is_patient)
    return said


async def test_a_tracker_that_works_on_its_opening_gets_its_deadline_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process([0.0, 1.0, 2.0])
    assert await closed(process, tmp_path, monkeypatch) == []
    assert process.deadlines == [4 * DEADLINE_S, DEADLINE_S]


@pytest.mark.parametrize("works", [[0.0, 0.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
async def test_one_that_does_not_open_is_given_up_with_the_reason_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: list[float]
) -> None:
    process = Process(works, hangs=True)
    (said,) = await closed(process, tmp_path, monkeypatch)
    assert said.startswith("not delivered to MLflowLoggerCallback: train_a_0: iterations 1-8.")
    assert "it was still opening sqlite:///mlflow.db: no row accepted yet" in said
    assert said.endswith("to deliver it: HOLDFAST_TRACKER_DEADLINE_S=1 holdfast resume here")
    assert process.deadlines == [4 * DEADLINE_S, 0.0]


async def test_after_ctrl_c_the_deadline_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process([], hangs=True)
    await closed(process, tmp_path, monkeypatch, is_patient=False)
    assert process.deadlines == [DEADLINE_S]
