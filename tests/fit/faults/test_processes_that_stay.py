"""A process that survives SIGKILL delays no run, and `fit()` names it."""

from __future__ import annotations

import math
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.runtime import interpreter, local_launcher, process_exits, service
from holdfast.runtime.warm import client
from holdfast.runtime.wire import Message
from tests.rig.trackers.fake_tracker import FakeTracker

pytestmark = pytest.mark.process
PATIENCE_S = 0.2


class Staying(subprocess.Popen[bytes]):
    """Like a process that hangs in the kernel: its end is never seen."""

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        """Has no effect."""


@pytest.fixture
def staying(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """A part of a process's command line, and its pid once it has been started."""
    wanted: dict[str, int] = {}
    pids: list[int] = []  # one may be started again
    silent = os.pipe()

    def started(*args: Any, **options: Any) -> tuple[subprocess.Popen[bytes], socket.socket]:
        process, ours = interpreter.start_child(*args, **options)
        for name in wanted:
            if name in " ".join(map(str, process.args)):  # type: ignore[arg-type]
                process.__class__ = Staying
                wanted[name] = process.pid
                pids.append(process.pid)
        return process, ours

    def pidfd(pid: int) -> int:
        return os.dup(silent[0]) if pid in pids else os.pidfd_open(pid)

    for module in (service, client):
        monkeypatch.setattr(module, "start_child", started)
    for module in (process_exits, local_launcher, client):
        monkeypatch.setattr(module, "EXIT_DEADLINE_S", PATIENCE_S)
    monkeypatch.setattr(process_exits, "_pidfd", pidfd)
    yield wanted
    for pid in pids:
        os.waitpid(pid, 0)  # it had ended, and is gone with this
    for end in silent:
        os.close(end)


def train(config: dict[str, Any]) -> None:
    for n in range(2):
        folder = tune.staging_directory()
        Path(folder, "n").write_text(str(n))
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_directory(folder))


def fits(tmp_path: Path) -> tune.ResultGrid:
    config = tune.RunConfig(
        storage_path=str(tmp_path), name="run", callbacks=[FakeTracker(tmp_path / "told")]
    )
    return tune.Tuner(train, run_config=config).fit()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("projector.process:main", "the projector (it writes result.json and similar files)"),
        ("uploader.process:main", "the uploader (it commits and uploads checkpoints)"),
        ("trackers.process:main", "the tracker process of FakeTracker"),
        ("from holdfast.runtime.warm.parent", "the warm parent"),
    ],
    ids=["projector", "uploader", "tracker", "warm parent"],
)
def test_a_process_of_the_run(
    tmp_path: Path,
    staying: dict[str, int],
    capfd: pytest.CaptureFixture[str],
    command: str,
    name: str,
) -> None:
    staying[command] = 0
    (result,) = fits(tmp_path)
    assert result.metrics is not None
    assert result.metrics["n"] == 1
    told = " ".join("".join(capfd.readouterr()).split())
    assert f"{name} (pid {staying[command]}) still exists after SIGKILL" in told


def test_a_worker(
    tmp_path: Path,
    staying: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    hear = local_launcher.LocalLauncher._on_message
    pids: list[int] = []

    def deaf(self: local_launcher.LocalLauncher, message: Message) -> None:
        if message[0] == "forked":
            pids.append(message[2])
        if message[0] != "exited":
            hear(self, message)

    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "0.2")
    monkeypatch.setattr(local_launcher.LocalLauncher, "_on_message", deaf)
    monkeypatch.setattr(local_launcher, "survives", lambda pid: True)
    monkeypatch.setattr(local_launcher, "LEFT_AFTER_S", math.inf)
    answered: list[int] = []
    judge = local_launcher.PendingLaunches.answered

    def answers(self: local_launcher.PendingLaunches, token: int) -> None:
        answered.append(token)
        judge(self, token)
        monkeypatch.setattr(local_launcher, "LEFT_AFTER_S", 0.0)

    monkeypatch.setattr(local_launcher.PendingLaunches, "answered", answers)
    (result,) = fits(tmp_path)
    assert result.metrics is not None
    assert result.metrics["n"] == 1
    assert answered == [1]  # so the worker hangs, not the process that forked it
    told = " ".join("".join(capfd.readouterr()).split())
    assert f".1.0 (pid {pids[0]}) still exists after SIGKILL" in told
