"""Orders of the thread of `fit()` to a run, at its first and its last moment."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import tune
from holdfast.experiment.control import run as run_module
from holdfast.experiment.control.controller import Controller, ControllerParts
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.run import Run
from holdfast.experiment.control.services import Ending, Working
from holdfast.experiment.control.watch import StopSignals
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.experiment.workers.pool import WorkerPool
from holdfast.experiment.workers.shared_capacity import SharedCapacity
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.machine import Machine
from holdfast.syncer.uploader.lock import ExperimentLock, LockLost
from holdfast.trial.trial import CheckpointUploadMode, Trial, TrialSpec

LONG_S = 300.0


def a_run() -> Run:
    plan: Any = SimpleNamespace(machine=Machine(), engine=None)
    return Run(plan)


def test_a_message_and_a_line_end_a_rest_also_if_they_came_before_it() -> None:
    run = a_run()
    run.tell("look out")
    run.tell("again")
    assert run.wait_for_news(0.0, LONG_S, LONG_S)
    threading.Timer(0.01, run.tell, ["look out"]).start()
    assert run.wait_for_news(0.0, LONG_S, LONG_S)


def test_a_signal_ends_a_rest() -> None:
    run = a_run()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopSignals(caught=run.ring) as signals:
            threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGINT]).start()
            assert run.wait_for_news(0.0, LONG_S, LONG_S)
            assert signals.take() == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_report_is_news_only_after_the_rest_and_a_new_status_at_once() -> None:
    run = a_run()
    run._on_change(is_of_status=False)
    assert run._bell.empty()
    run.machine.now = 7.0
    assert not run.wait_for_news(0.0, 0.0, LONG_S)  # an event since the look at 0.0

    class Bell:
        """A report comes when the quiet has begun."""

        def __init__(self) -> None:
            self.waits: list[float] = []

        def empty(self) -> bool:
            return True

        def get(self, timeout: float) -> None:
            self.waits.append(timeout)
            if len(self.waits) == 2:
                run._on_change(is_of_status=False)
            else:
                raise queue.Empty

        def put(self, _: None) -> None:
            self.waits.append(-1.0)

    bell: Any = Bell()
    run._bell = bell
    assert run.wait_for_news(7.0, 1.0, 2.0)
    assert bell.waits == [1.0, 2.0, -1.0]
    run._on_change(is_of_status=True)
    assert bell.waits[-1] == -1.0
    assert len(bell.waits) == 4


def test_the_end_of_the_run_ends_a_rest() -> None:
    run = a_run()
    run.done.set()
    run.ring()
    assert run.wait_for_news(0.0, LONG_S, LONG_S)


def trains(config: dict[str, Any]) -> None:
    folder = Path(tune.staging_directory())
    (folder / "model").write_text("weights")
    checkpoint = tune.Checkpoint.from_directory(folder)
    tune.report({"loss": 1.0}, checkpoint=checkpoint, checkpoint_upload_mode=config["mode"])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (CheckpointUploadMode.ASYNC, ["answered", "opened"]),
        (CheckpointUploadMode.SYNC, ["opened", "answered"]),
    ],
)
def test_a_report_is_answered_before_the_uploader_starts_unless_it_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, expected: list[str]
) -> None:
    order: list[str] = []
    reply, uploads = WorkerPool.reply, Controller._uploads

    def answer(pool: WorkerPool, *arguments: Any) -> None:
        order.append("answered")
        reply(pool, *arguments)

    def opened(controller: Controller) -> Any:
        if controller.uploads is None:
            order.append("opened")
        return uploads(controller)

    monkeypatch.setattr(WorkerPool, "reply", answer)
    monkeypatch.setattr(Controller, "_uploads", opened)
    tune.Tuner(
        trains,
        param_space={"mode": mode},
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    ).fit()
    assert order == expected


class FakeUploads:
    """Records the trials whose superseded checkpoints it must remove."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def discard_superseded(self, trial: Trial, kept: Collection[int]) -> None:
        self.removed.append(trial.trial_id)


def controller_of(folder: Path, lock: ExperimentLock, uploads: FakeUploads) -> Controller:
    """A controller with a trial whose only checkpoint is superseded."""
    spec = TrialSpec(trial_id="t_0", index=0, name="t_0", dirname="d", config={})
    machine = Machine()
    machine.trials["t_0"] = Trial(spec=spec, next_checkpoint=1)
    idle: Any = SimpleNamespace(report_to=lambda fail: None)
    plan: Any = SimpleNamespace(
        machine=machine,
        layout=Layout(folder),
        settings=Settings(local_dir=folder),
        host_resources=MachineResources(total={"CPU": 1}, gpu_names=()),
        job=SimpleNamespace(group=None),
        proposer=SimpleNamespace(searcher=None),
        stopper=None,
        lock=lock,
        engine=None,
        scheduler_calls=None,
    )
    return Controller(
        plan,
        ControllerParts(
            tasks=RunTasks(),
            launcher=idle,
            capacity=SharedCapacity({"CPU": 1}),
            journal_writer=idle,
            callbacks=idle,
            open_uploads=lambda controller: cast(Uploads, uploads),
            tell=lambda text, level: None,
            show_line=lambda *line: None,
            on_retry=lambda retry: None,
        ),
    )


def test_a_run_begins_no_thread_once_its_lock_is_lost(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / ".lock")
    run = Run(cast(RunPlan, SimpleNamespace(machine=Machine(), lock=lock, engine=None)))
    (tmp_path / ".lock").unlink()
    with pytest.raises(LockLost, match="it was removed"):
        run.start()
    lock.release()


def test_a_controller_has_nothing_removed_once_its_lock_is_lost_and_ends(tmp_path: Path) -> None:
    lock, uploads = ExperimentLock(tmp_path / ".lock"), FakeUploads()

    async def remove() -> Controller:
        controller = controller_of(tmp_path, lock, uploads)
        controller.remove_superseded()
        assert uploads.removed == ["t_0"]
        (tmp_path / ".lock").unlink()
        controller.remove_superseded()
        controller.close()
        return controller

    controller = asyncio.run(remove())
    assert uploads.removed == ["t_0"]
    assert controller.has_lost_ownership
    assert "it was removed" in str(controller.fault)
    lock.release()


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
