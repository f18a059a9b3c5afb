"""A run that has lost its lock to another starts nothing and removes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.experiment.control.controller import Controller, ControllerParts
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.run import Run
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.experiment.workers.shared_capacity import SharedCapacity
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.machine import Machine
from holdfast.syncer.uploader.lock import ExperimentLock, LockLost
from holdfast.trial.trial import Trial, TrialSpec


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
        proposer=idle,
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
