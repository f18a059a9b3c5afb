"""An experiment in each state that a page can show, as files: no process runs one."""

from __future__ import annotations

import fcntl
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.scheduler.events import SearchEnded
from holdfast.syncer.uploader.lock import Holder
from holdfast.trial.events import Unread
from holdfast.trial.resources import NodeKind
from tests.rig.runs.recorded import RecordedExperiment

SPACE = ("lr", "dropout", "batch", "optimizer")
TRIALS, EPOCHS = 8, 12


class Experiment:
    """`run` is None before its first record. While `held`, a process has its lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run: RecordedExperiment | None = None
        self._lock = -1

    @property
    def name(self) -> str:
        return self.root.name

    def begin(self, **spec: Any) -> RecordedExperiment:
        """Its first record."""
        options = {"trials": TRIALS}
        self.run = RecordedExperiment(
            self.root, metric="loss", mode="min", options=options, num_samples=TRIALS, **spec
        )
        return self.run

    def hold(self, *, by_controller: bool = True) -> None:
        """Take its lock, as the run's controller, or as a process that has outlived it."""
        self._lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if by_controller:
            os.pwrite(self._lock, Holder.here().to_bytes(), 0)
            os.mknod(self.root / "control.sock", stat.S_IFSOCK | 0o600)

    def release(self) -> None:
        """The process ends."""
        (self.root / "control.sock").unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def close(self) -> None:
        self.release()
        if self.run is not None:
            self.run.close()


def config_of(index: int) -> dict[str, Any]:
    values = (10.0 ** -(1 + index / 3), index / 20, 32 << index % 3, ("adam", "sgd")[index % 2])
    return dict(zip(SPACE, values, strict=True))


def row_of(index: int, epoch: int) -> dict[str, Any]:
    loss = 0.2 + (index - 3) ** 2 / 40 + 2 * math.exp(-epoch / 4)
    return {"loss": loss, "accuracy": 1 - loss / 3, "epoch": epoch, "grad_norm": 1.5 / epoch}


def trained(run: RecordedExperiment, *, ended: int, begun: int = TRIALS, failed: int = 0) -> None:
    """So many trials have begun, of which the first have ended, and of those the last failed."""
    for index in range(begun):
        trial_id = run.begin(config_of(index))
        for epoch in range(1, EPOCHS + 1 if index < ended else 6):
            run.report(trial_id, row_of(index, epoch), checkpoint="committed")
        if ended - failed <= index < ended:
            run.fail(trial_id)
        elif index < ended:
            run.finish(trial_id)
    if ended == TRIALS:
        run.add(SearchEnded())
    run.write_files()


def starting(made: Experiment) -> None:
    (made.root / "journal").mkdir(parents=True)
    (made.root / "journal" / "000000.log").touch()
    made.hold()


def waiting_for_nodes(made: Experiment) -> None:
    run = made.begin(offer=[NodeKind(name="gpu", resources={"CPU": 8.0, "GPU": 1.0}, most=2)])
    run.suggest(config_of(0))
    made.hold()


def running(made: Experiment) -> None:
    run = made.begin(max_concurrent=3)
    trained(run, ended=3, begun=6)
    run.suggest(config_of(6))
    made.hold()


def orphaned(made: Experiment) -> None:
    """Its controller is dead, and a process that it started has not ended yet."""
    trained(made.begin(), ended=2, begun=4)
    made.hold(by_controller=False)


def interrupted(made: Experiment) -> None:
    run = made.begin(max_concurrent=2)
    trained(run, ended=2, begun=4)
    run.suggest(config_of(4))


def failed(made: Experiment) -> None:
    run = made.begin()
    trained(run, ended=TRIALS, failed=3)
    run.add(Unread(trial_id="d2a66_00000", lines=3))


def finished(made: Experiment) -> None:
    trained(made.begin(), ended=TRIALS)


STATES: dict[str, Callable[[Experiment], None]] = {
    "starting": starting,
    "waiting-for-nodes": waiting_for_nodes,
    "running": running,
    "orphaned": orphaned,
    "interrupted": interrupted,
    "failed": failed,
    "finished": finished,
}
