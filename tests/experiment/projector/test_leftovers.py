"""Half-written files of earlier incarnations are removed; live files and the user's stay."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector import process
from holdfast.experiment.projector.folders import CleanFolders, remove_leftovers
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.runtime.transport import Channel
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.trial import checkpoint_number
from tests.rig.runs.recorded import RecordedExperiment

TEMPORARY, REMOVED = ".tmp-0123456789abcdef", ".removed-0123456789abcdef"
FOLDERS = ("", "journal", "trial", "trial/checkpoint_000001")


@pytest.fixture
def tree(tmp_path: Path) -> Layout:
    for folder in FOLDERS[1:]:
        (tmp_path / folder).mkdir()
    return Layout(tmp_path)


def swept(tree: Layout) -> None:
    """Everything that a new projector removes before it knows a trial."""
    remove_leftovers(tree)
    CleanFolders(tree, lambda: None, remembers=False).sweep_all(Machine())


def take_over(tree: Layout, *, in_s: float) -> None:
    """The lock is taken this much later than now."""
    tree.lock.touch()
    moment = time.time() + in_s
    os.utime(tree.lock, (moment, moment))


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_dead_process_left_goes(tree: Layout, folder: str) -> None:
    (tree.root / folder / TEMPORARY).write_text("half a row")
    (tree.root / folder / REMOVED).mkdir()
    (tree.root / folder / REMOVED / "weights").touch()
    take_over(tree, in_s=10)
    swept(tree)
    assert not list(tree.root.rglob(".tmp-*"))
    assert not list(tree.root.rglob(".removed-*"))


def test_what_was_staged_for_a_worker_that_died_goes(tree: Layout) -> None:
    staged = tree.root / "trial" / ".staging" / "0123"
    staged.mkdir(parents=True)
    take_over(tree, in_s=10)
    swept(tree)
    assert not staged.exists()


def test_what_this_incarnation_writes_stays(tree: Layout) -> None:
    take_over(tree, in_s=-10)
    staged = tree.root / "trial" / ".staging" / "0123"
    staged.mkdir(parents=True)
    (tree.root / TEMPORARY).write_text("it will be renamed")
    swept(tree)
    assert staged.exists()
    assert (tree.root / TEMPORARY).exists()


def test_users_files_stay_whatever_their_names(tree: Layout) -> None:
    artifacts = tree.root / "trial" / "artifacts"
    artifacts.mkdir()
    kept = [tree.root / "trial" / ".tmp-mine", artifacts / TEMPORARY]
    for path in kept:
        path.touch()
    take_over(tree, in_s=10)
    swept(tree)
    assert all(path.exists() for path in kept)


def unnamed(run: RecordedExperiment, trial_id: str) -> Path:
    """A checkpoint that a worker staged before it died, before the report was acknowledged."""
    made = run.folder(trial_id) / f"checkpoint_{run.trial(trial_id).next_checkpoint:06d}"
    made.mkdir(parents=True)
    (made / "weights").touch()
    (made / ".holdfast-staged").touch()
    return made


def test_what_no_record_names_goes_once_its_trial_will_not_run_again(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp")
    ended, alive = run.begin(), run.begin()
    for trial_id in (ended, alive):
        run.report(trial_id, {"loss": 1}, checkpoint="committed")
    gone, kept = unnamed(run, ended), unnamed(run, alive)
    run.fail(ended)
    users = [run.folder(ended) / name for name in ("checkpoint_mine", "checkpoint_000077")]
    for folder in users:
        folder.mkdir()
    folders = CleanFolders(run.layout, lambda: None, remembers=False)
    take_over(run.layout, in_s=-10)
    folders.sweep_all(run.machine)
    assert gone.exists()  # it belongs to this incarnation
    take_over(run.layout, in_s=10)
    with Checkpoint(gone).as_directory():
        folders.sweep_all(run.machine)
        assert (gone / "weights").exists()
    run.write_files()  # the projector does it first
    assert not gone.exists()
    assert kept.exists()
    assert all(folder.exists() for folder in users)
    recorded = run.folder(ended) / "checkpoint_000002"
    recorded.mkdir()
    manifest.write(recorded)
    take_over(run.layout, in_s=20)
    folders.sweep_all(run.machine)
    assert {path.name for path in run.folder(ended).glob("*checkpoint*")} == {
        "checkpoint_000000",
        "checkpoint_000002",  # its record is lost
        "checkpoint_000077",
        "checkpoint_mine",
    }
    run.close()


def lost(lock: ExperimentLock) -> None:
    """Another lock has replaced this one, and its owner might run the experiment."""
    path = Path(lock.workers).with_name(".lock")
    path.unlink()
    path.touch()


def test_a_projector_sweeps_nothing_once_the_experiment_may_be_anothers(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp")
    ended, ends = run.begin(), run.begin()
    left = [unnamed(run, trial_id) for trial_id in (ended, ends)]
    run.fail(ended)
    lock = ExperimentLock(run.layout.lock)
    lost(lock)
    take_over(run.layout, in_s=10)
    projector = Projector(run.layout, ProjectorSettings(), check_ownership=lock.check_ownership)
    projector.catch_up()
    run.finish(ends)
    projector.catch_up()
    projector.sweep()
    assert all(path.exists() for path in left)
    lock.release()
    run.close()


class Controllers:
    """The controller's end of the projector's connection: it opens it, and is gone."""

    def __init__(self, opening: list[Any]) -> None:
        self._messages: list[list[Any]] = [opening]

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._messages.pop() if self._messages else None

    def send(self, message: list[Any]) -> None:
        """Ignores messages."""


def test_the_socket_of_a_run_that_was_killed_goes_also_where_only_nodes_had_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "give_way", lambda nice: None)
    with subprocess.Popen([sys.executable, "-Ic", ""]) as dead:
        monkeypatch.setattr(os, "getppid", lambda: dead.pid)
    run = RecordedExperiment(tmp_path / "exp")
    run.begin()
    run.close()
    lock = ExperimentLock(run.layout.lock)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(run.layout.control))
    opening = ["open", str(run.layout.root), {"tensorboard": False}, [*lock.claim], 0.0]
    process.main(cast(Channel, Controllers(opening)))
    assert not run.layout.control.exists()
    lock.release()


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_projectors_process_sweeps_only_while_the_lock_is_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    monkeypatch.setattr(process, "give_way", lambda nice: None)
    run = RecordedExperiment(tmp_path / "exp")
    trial_id = run.begin()
    left = [unnamed(run, trial_id), run.layout.root / TEMPORARY]
    left[1].touch()
    run.fail(trial_id)
    run.close()
    lock = ExperimentLock(run.layout.lock)
    if is_lost:
        lost(lock)
    take_over(run.layout, in_s=10)
    opening = ["open", str(run.layout.root), {"tensorboard": False}, [*lock.claim], 0.0]
    process.main(cast(Channel, Controllers(opening)))
    assert [path.exists() for path in left] == [is_lost] * 2
    lock.release()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("checkpoint_000012", 12),
        ("checkpoint_1000000", 1000000),
        ("checkpoint_", None),
        ("checkpoint_x", None),
        ("checkpoint_\u0663", None),
        ("000012", None),
    ],
)
def test_only_a_checkpoints_folder_has_its_number(name: str, number: int | None) -> None:
    assert checkpoint_number(name) == number


def test_what_no_record_names_goes_at_the_end_where_its_trial_has_not_run_again(
    tmp_path: Path,
) -> None:
    """A checkpoint of a paused trial whose worker died after saving; the trial is then stopped."""
    run = RecordedExperiment(tmp_path / "exp")
    trial_id = run.begin()
    run.report(trial_id, {"loss": 1})
    left = unnamed(run, trial_id)
    take_over(run.layout, in_s=10)
    projector = Projector(run.layout, ProjectorSettings())
    projector.catch_up()
    projector.sweep()
    assert left.exists()
    run.finish(trial_id)
    projector.catch_up()
    projector.sweep()
    assert not left.exists()
    run.close()
