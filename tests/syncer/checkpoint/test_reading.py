"""Readers of a local checkpoint and its removal, with the kernel's locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.reading import (
    JOURNAL,
    LOCK,
    BeingRead,
    is_whole,
    reading,
    retire,
    unread,
)
from holdfast.syncer.errors import CheckpointGone, DirectoryMissing, NotStored, UnusableFile
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trees import delete_tree


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment with one committed checkpoint."""
    checkpoint = tmp_path / "run" / "trial" / "checkpoint_000000"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model").write_bytes(b"weights")
    (checkpoint / MANIFEST_NAME).write_bytes(b"{}")
    return tmp_path / "run"


@pytest.fixture
def checkpoint(experiment: Path) -> Path:
    return experiment / "trial" / "checkpoint_000000"


def test_what_is_read_is_not_removed_until_the_last_reader_left(checkpoint: Path) -> None:
    one, two = Checkpoint(checkpoint), Checkpoint(checkpoint)
    with one.as_directory():
        with two.as_directory(), pytest.raises(BeingRead, match="it is being read"):
            retire(checkpoint)
        with pytest.raises(BeingRead):
            retire(checkpoint)
        assert sorted(os.listdir(checkpoint)) == [MANIFEST_NAME, "model"]
    aside = retire(checkpoint)
    assert aside is not None
    assert is_leftover(aside.name)
    assert not checkpoint.exists()
    assert retire(checkpoint) is None


def test_what_is_just_being_removed_is_not_read(checkpoint: Path) -> None:
    with unread(checkpoint), pytest.raises(CheckpointGone, match="it is being removed"):
        Checkpoint(checkpoint).to_directory()
    with Checkpoint(checkpoint).as_directory():
        """A removal that was given up blocks no reader."""


def test_what_was_removed_in_the_moment_of_opening_it_is_not_read(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = fcntl.flock

    def slow(descriptor: int, flags: int) -> None:
        monkeypatch.undo()
        assert retire(checkpoint) is not None
        share(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", slow)
    with (
        pytest.raises(CheckpointGone, match="just been removed"),
        reading(str(checkpoint), "open"),
    ):
        pass


def test_what_has_taken_its_place_in_the_moment_of_opening_it_is_held(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = fcntl.flock

    def slow(descriptor: int, flags: int) -> None:
        monkeypatch.undo()
        checkpoint.rename(checkpoint.with_name("old"))
        checkpoint.mkdir()
        share(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", slow)
    with reading(str(checkpoint), "open"):
        assert retire(checkpoint.with_name("old")) is not None
        with pytest.raises(BeingRead):
            retire(checkpoint)


def test_a_superseded_checkpoint_is_named_as_what_it_is(checkpoint: Path) -> None:
    (checkpoint.parent.parent / JOURNAL).mkdir()
    delete_tree(checkpoint)
    with pytest.raises(CheckpointGone, match="num_to_keep supersedes") as told:
        Checkpoint(checkpoint).get_metadata()
    assert isinstance(told.value, NotStored)
    assert isinstance(told.value, FileNotFoundError)
    assert told.value.filename == str(checkpoint)


def test_a_directory_of_the_users_is_only_missing(tmp_path: Path) -> None:
    with pytest.raises(DirectoryMissing) as told, reading(str(tmp_path / "mine"), "open"):
        pass
    assert not isinstance(told.value, CheckpointGone)
    (tmp_path / "file").touch()
    with pytest.raises(UnusableFile), reading(str(tmp_path / "file"), "open"):
        pass


@pytest.mark.parametrize(
    ("marks", "is_visible"),
    [((), True), ((CLAIMS,), False), ((LOCK,), True), ((CLAIMS, LOCK), True)],
)
def test_what_is_not_whole_is_visible_nowhere_that_experiments_are_uploaded_to(
    experiment: Path, checkpoint: Path, marks: tuple[str, ...], is_visible: bool
) -> None:
    """In the folder of a run, staged checkpoints are complete; checkpoints by others have no
    manifest."""
    for mark in marks:
        (experiment / mark).mkdir()
    with Checkpoint(checkpoint).as_directory() as path:
        assert path == str(checkpoint)
    (checkpoint / MANIFEST_NAME).unlink()
    if is_visible:
        with Checkpoint(checkpoint).as_directory():
            return
    with pytest.raises(CheckpointGone, match="its upload is incomplete, or it is being removed"):
        Checkpoint(checkpoint).to_directory()


def test_what_nodes_upload_to_the_folder_of_a_run_is_visible_once_it_is_whole(
    experiment: Path, checkpoint: Path
) -> None:
    (experiment / CLAIMS).mkdir()
    (checkpoint / MANIFEST_NAME).unlink()
    ExperimentLock(experiment / LOCK, has_nodes=True).release()
    with pytest.raises(CheckpointGone, match="its upload is incomplete"):
        Checkpoint(checkpoint).to_directory()
    assert not is_whole(checkpoint)
    ExperimentLock(experiment / LOCK).release()  # the doctor
    assert not is_whole(checkpoint)
    ExperimentLock(experiment / LOCK, has_nodes=False).release()  # a restore on this machine
    assert is_whole(checkpoint)


@contextmanager
def nobody_may_write(folder: Path) -> Iterator[None]:
    folder.chmod(0o555)
    yield
    folder.chmod(0o755)


def test_a_read_only_directory_is_held_too(checkpoint: Path) -> None:
    with (
        nobody_may_write(checkpoint),
        Checkpoint(checkpoint).as_directory(),
        pytest.raises(BeingRead),
    ):
        retire(checkpoint)
    assert sorted(os.listdir(checkpoint)) == [MANIFEST_NAME, "model"]


def test_where_there_are_no_locks_checkpoints_are_read_and_removed_all_the_same(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, flags: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with Checkpoint(checkpoint).as_directory() as path:
        assert Path(path, "model").read_bytes() == b"weights"
    assert retire(checkpoint) is not None


HOLDER = """
import os, sys
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
with Checkpoint(sys.argv[1]).as_directory():
    print("reading", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_a_killed_reader_holds_nothing(checkpoint: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkpoint)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        with pytest.raises(BeingRead):
            retire(checkpoint)
        reader.kill()
    assert retire(checkpoint) is not None


FORKER = """
import os, sys
from pathlib import Path
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.reading import BeingRead, unread

path = Path(sys.argv[1])

def is_held():
    try:
        with unread(path):
            return False
    except BeingRead:
        return True

with Checkpoint(path).as_directory():
    leaver = os.fork()
    if leaver:
        os.waitpid(leaver, 0)
        print("held while the parent reads:", is_held())
if not leaver:
    os._exit(0)  # it has left the block, which is its parent's
ends, lives = os.pipe()
with Checkpoint(path).as_directory():
    stayer = os.fork()
    if not stayer:
        os.close(lives)
        os.read(ends, 1)
        os._exit(0)
print("held after the parent has left:", is_held())
os.close(lives)
os.waitpid(stayer, 0)
"""


@pytest.mark.process
def test_a_child_that_is_forked_meanwhile_neither_ends_nor_prolongs_the_reading(
    checkpoint: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKER, str(checkpoint)], capture_output=True, text=True, timeout=30
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "held while the parent reads: True",
        "held after the parent has left: False",
    ]
