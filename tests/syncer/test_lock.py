"""One incarnation at a time, and who holds it is said."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.lock import ExperimentLock, Locked, is_alive


def test_a_second_lock_is_refused_at_once_with_the_name_of_the_holder(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / "exp" / ".lock")
    with pytest.raises(Locked, match=f"process {os.getpid()} on {os.uname().nodename}"):
        ExperimentLock(tmp_path / "exp" / ".lock", deadline_s=3600)
    lock.release()
    ExperimentLock(tmp_path / "exp" / ".lock").release()


def test_stragglers_of_a_controller_that_is_gone_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    script = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from holdfast.syncer.lock import ExperimentLock\n"
        "lock = ExperimentLock(Path(sys.argv[1]))\n"
        "straggler = [sys.executable, '-c', 'import sys; sys.stdin.read()']\n"
        "subprocess.Popen(straggler, pass_fds=[lock.fileno()], stdin=0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as controller:
        # What it has started reads our pipe to its end, and holds the lock as long.
        assert controller.wait(60) == 0
        with pytest.raises(Locked):
            ExperimentLock(path, deadline_s=0)
        assert controller.stdin is not None
        controller.stdin.close()
        ExperimentLock(path, deadline_s=60).release()


def test_a_file_system_without_locks_is_told(
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
