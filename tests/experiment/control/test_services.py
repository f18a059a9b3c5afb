"""Messages about the processes of a run: a loss is shown at `verbose=0`, too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.experiment.control import services, uploader
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.trackers.delivery import TrackerJob
from holdfast.experiment.trackers.supervisor import TrackerProcesses
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Journal
from tests.rig.free_tasks import free_tasks

pytestmark = pytest.mark.anyio


class Dead:
    """A process that is killed as soon as it is started."""

    pid = 0

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended.set_result("was killed")

    def send(self, message: list[Any]) -> None:
        """Ignores messages."""

    async def gone(self) -> str:
        return "was killed"

    async def close(self) -> None:
        """Has ended."""


class Told:
    """The messages by level; `loss` is set once there is one."""

    def __init__(self) -> None:
        self.by_level: dict[str, list[str]] = {}
        self.loss = asyncio.Event()

    def __call__(self, text: str, level: str = "warning") -> None:
        self.by_level.setdefault(level, []).append(text)
        if level == "loss":
            self.loss.set()


@pytest.fixture
async def tell() -> Told:
    return Told()


async def first_loss(told: Told) -> str:
    await asyncio.wait_for(told.loss.wait(), 60)
    (text,) = told.by_level["loss"]
    return text


async def test_a_projector_that_is_not_started_again_is_a_loss(
    tmp_path: Path, tell: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "start_service", lambda *_: Dead())
    settings = SimpleNamespace(
        tensorboard=False,
        config_in_rows=True,
        snapshot_period_s=10.0,
        disk_deadline_s=10.0,
        fsync_period_s=1.0,
    )
    lock = SimpleNamespace(claim=(0, ""), check_ownership=lambda: None)
    plan: Any = SimpleNamespace(
        layout=Layout(tmp_path), settings=settings, lock=lock, remote=None, engine=None
    )
    writer = services.open_journal_writer(plan, Journal(tmp_path / "journal"), tell, free_tasks())
    assert "result.json, progress.csv and snapshots stay behind" in await first_loss(tell)
    assert len(tell.by_level["warning"]) == 3  # the number of restarts
    await writer.close()


async def test_a_tracker_process_that_is_not_started_again_is_a_loss(
    tmp_path: Path, tell: Told
) -> None:
    job = TrackerJob(
        root=str(tmp_path),
        experiment_id="e",
        trainable="t",
        experiment_path="",
        begins=0,
        name="T",
    )
    start: Any = lambda on_message: Dead()  # noqa: E731
    processes = TrackerProcesses([job], start, tell, refuse=lambda text: None, tasks=free_tasks())
    processes.open()
    assert "tracker process of T was killed; it has failed too often" in await first_loss(tell)


@pytest.mark.parametrize(
    ("message", "level", "said"),
    [
        (["failed", "artifacts of t0", "denied"], "loss", "storage gave up on artifacts of t0"),
        (["trouble", "it does not answer"], "warning", "storage: it does not answer"),
        (["stuck", "checkpoint_000000", "denied"], "warning", "superseded"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_what_storage_does_not_keep_is_a_loss_and_what_is_retried_is_none(
    tell: Told,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    message: list[Any],
    level: str,
    said: str,
) -> None:
    monkeypatch.setattr(uploader, "RestartingService", lambda *_, **__: Dead())
    sync = SimpleNamespace(
        sync_artifacts=False,
        sync_artifacts_on_checkpoint=False,
        restore_artifacts=False,
        sync_timeout=1.0,
        sync_period=1.0,
    )
    plan: Any = SimpleNamespace(
        layout=Layout(tmp_path),
        remote=None,
        location=SimpleNamespace(public=str(tmp_path)),
        spec=SimpleNamespace(experiment_id="e"),
        job=SimpleNamespace(log_names=()),
        sync=sync,
        settings=SimpleNamespace(disk_deadline_s=10.0),
        begins=0,
    )
    parts = ("journal_writer", "post", "lose", "lose_ownership")
    controller: Any = SimpleNamespace(**dict.fromkeys(parts), machine=Machine())
    controller.warn = lambda text, level="warning": tell(text, level)
    uploader.open_uploads(plan, controller, tell, free_tasks()).on_answer(message)
    assert list(tell.by_level) == [level]
    assert said in tell.by_level[level][0]
