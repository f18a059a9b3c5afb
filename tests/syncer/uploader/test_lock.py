"""One incarnation at a time, and messages that name the holder."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.uploader import lock as locking
from holdfast.syncer.uploader.lock import ExperimentLock, Holder, Locked, LockLost, is_alive


def test_a_second_lock_is_refused_at_once_with_the_name_of_the_holder(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / "exp" / ".lock")
    with pytest.raises(Locked, match=f"process {os.getpid()} on {os.uname().nodename}"):
        ExperimentLock(tmp_path / "exp" / ".lock", deadline_s=3600)
    lock.release()
    ExperimentLock(tmp_path / "exp" / ".lock").release()


def test_it_is_free_once_the_last_in_this_process_who_may_write_has_released_it(
    tmp_path: Path,
) -> None:
    lock = ExperimentLock(tmp_path / ".lock")
    lock.hold()
    lock.release()
    with pytest.raises(Locked):
        ExperimentLock(tmp_path / ".lock")
    lock.release()
    ExperimentLock(tmp_path / ".lock").release()


def test_who_looks_at_a_lock_keeps_no_one_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process that held it last still lives, as this one does."""
    path = tmp_path / ".lock"
    ExperimentLock(path).release()
    looks = os.open(path, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH | fcntl.LOCK_NB)
    wait_for = locking._wait_for

    def looked(descriptor: int, how: int, deadline_s: float) -> bool:
        fcntl.flock(looks, fcntl.LOCK_UN)
        return wait_for(descriptor, how, deadline_s)

    monkeypatch.setattr(locking, "_wait_for", looked)
    ExperimentLock(path, deadline_s=60.0).release()
    os.close(looks)


def test_stragglers_of_a_controller_that_is_gone_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    script = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from holdfast.syncer.uploader.lock import ExperimentLock\n"
        "lock = ExperimentLock(Path(sys.argv[1]))\n"
        "straggler = [sys.executable, '-c', 'import sys; sys.stdin.read()']\n"
        "subprocess.Popen(straggler, pass_fds=[lock.fileno()], stdin=0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as controller:
        # Its child reads our pipe to the end, and holds the lock as long.
        assert controller.wait(60) == 0
        with pytest.raises(Locked):
            ExperimentLock(path, deadline_s=0)
        assert controller.stdin is not None
        controller.stdin.close()
        ExperimentLock(path, deadline_s=60).release()


def test_a_process_of_the_last_run_of_this_process_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file names this process, which lives and runs nothing here any more."""
    lock = ExperimentLock(tmp_path / ".lock")
    inherited = os.dup(lock.fileno())  # as a service has it until its exit
    lock.release()
    wait_for = locking._wait_for

    def exits(descriptor: int, how: int, deadline_s: float) -> bool:
        if not is_closed:
            os.close(inherited)
            is_closed.append(True)
        return wait_for(descriptor, how, deadline_s)

    is_closed: list[bool] = []
    monkeypatch.setattr(locking, "_wait_for", exits)
    ExperimentLock(tmp_path / ".lock", deadline_s=60.0).release()


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageRefused, match="RAY_AIR_LOCAL_CACHE_DIR") as caught:
        ExperimentLock(tmp_path / ".lock")
    assert caught.value.where == str(tmp_path / ".lock")


def test_a_process_that_has_ended_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(ended.pid), "it is a zombie"
    assert not is_alive(ended.pid)
    assert is_alive(os.getpid())


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has printed a line when this returns, and ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


LOCKING = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH if "shared" in sys.argv else fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_is_held_is_proved(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / ".lock")
    lock.check_ownership()
    lock.check_ownership()
    with pytest.raises(Locked):
        ExperimentLock(tmp_path / ".lock", deadline_s=0)
    lock.check_ownership()
    lock.release()


def test_a_lock_that_was_removed_is_lost(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / ".lock")
    (tmp_path / ".lock").unlink()
    with pytest.raises(LockLost, match="it was removed"):
        lock.check_ownership()
    second = ExperimentLock(tmp_path / ".lock")
    with pytest.raises(LockLost, match="another file was put in its place"):
        lock.check_ownership()
    second.check_ownership()
    lock.release()
    second.release()


def test_a_lock_that_was_unlocked_is_lost(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / ".lock")
    fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
    with pytest.raises(LockLost, match="it was unlocked"):
        lock.check_ownership()
    lock.release()


def test_a_lock_that_another_has_taken_meanwhile_is_lost_and_the_holder_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / ".lock"
    lock = ExperimentLock(path)
    fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
    with started(LOCKING, str(path)) as other:
        with pytest.raises(LockLost, match=rf"process {other.pid} on .*has taken it"):
            lock.check_ownership()
        assert other.stdin is not None
        other.stdin.close()
    lock.release()


def test_a_lock_that_another_has_taken_and_given_back_is_lost(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = ExperimentLock(path)
    fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
    ExperimentLock(path).release()
    fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(LockLost):
        lock.check_ownership()
    lock.release()


def test_a_holder_that_says_nothing_is_named_by_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    with started(LOCKING, str(path), "shared") as other:
        with pytest.raises(Locked) as caught:
            ExperimentLock(path, deadline_s=0)
        assert f"process {other.pid} on {os.uname().nodename} (" in str(caught.value)
        assert "of the user" in str(caught.value)
        assert other.stdin is not None
        other.stdin.close()


@pytest.mark.parametrize(
    "said", [b"nonsense", b"[1]", b'{"pid": "1", "host": 7}', b"[" * 5000, b'{"pid": 1e99}']
)
def test_what_a_lock_says_is_not_believed(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / ".lock"
    path.write_bytes(said)
    with started(LOCKING, str(path)) as other:
        with pytest.raises(Locked, match=f"process {other.pid} on"):
            ExperimentLock(path, deadline_s=0)
        assert other.stdin is not None
        other.stdin.close()
    ExperimentLock(path).release()


def test_a_number_that_another_process_has_by_now_is_not_a_holder(tmp_path: Path) -> None:
    said = replace(Holder.here(), since=1.0)
    assert not said.is_controller
    assert Holder.here().is_controller
    path = tmp_path / ".lock"
    path.write_bytes(said.to_bytes())
    with started(LOCKING, str(path)) as other:
        with pytest.raises(Locked, match=f"process {other.pid} on"):
            ExperimentLock(path, deadline_s=0)
        assert other.stdin is not None
        other.stdin.close()


def test_workers_that_live_keep_the_next_incarnation_out(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = ExperimentLock(path)
    with started(LOCKING, lock.workers, "shared") as worker:
        lock.check_ownership()
        lock.release()
        with pytest.raises(Locked, match=f"workers of an earlier run still live: .*{worker.pid}"):
            ExperimentLock(path, deadline_s=0)
        assert worker.stdin is not None
        worker.stdin.close()
    ExperimentLock(path).release()


@pytest.mark.parametrize(
    ("folder", "expected"), [(0o700, 0o600), (0o755, 0o600), (0o775, 0o660), (0o777, 0o666)]
)
def test_only_who_may_write_to_the_folder_can_lock_it(
    tmp_path: Path, folder: int, expected: int
) -> None:
    """Nor the lock file that workers share: whoever has it exclusively keeps the next run out."""
    tmp_path.chmod(folder)
    lock = tmp_path / ".lock"
    workers = tmp_path / ".lock-workers"
    for is_there in (False, True):
        for path in (lock, workers):
            if is_there:
                path.chmod(0o644)
        held = ExperimentLock(lock)
        assert held.workers == str(workers)
        held.release()
        for path in (lock, workers):
            assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_copy_of_a_folder_that_is_run_at_this_moment_is_refused(tmp_path: Path) -> None:
    first = ExperimentLock(tmp_path / "first" / ".lock", is_mirror=True)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    for _ in range(2):  # the refusal leaves the copy as it was
        with pytest.raises(Locked) as refused:
            ExperimentLock(tmp_path / "copy" / ".lock", is_mirror=True)
        assert f"this folder is a copy of {tmp_path / 'first'}" in str(refused.value)
        assert f"process {os.getpid()} on" in str(refused.value)
    first.check_ownership()
    first.release()
    ExperimentLock(tmp_path / "copy" / ".lock", is_mirror=True).release()
