"""Whether the kernel has killed a process because memory ran out, by its counters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runtime.launcher import KernelKills, ending_of

KILLED = int(signal.SIGKILL)


def counter(folder: Path, kills: int, name: str = "memory.events") -> Path:
    path = folder / name
    path.write_text(f"low 0\nhigh 3\nmax 12\noom 9\noom_kill {kills}\noom_group_kill 0\n")
    return path


def test_a_sigkill_is_the_kernels_where_its_count_has_grown(tmp_path: Path) -> None:
    path = counter(tmp_path, 4)
    kills = KernelKills([path])
    counter(tmp_path, 5)
    ending = ending_of(KILLED, kills)
    assert ending.is_out_of_memory
    assert ending.cause == f"was killed by the kernel: out of memory (oom_kill in {path})"


def test_a_sigkill_came_from_elsewhere_if_it_has_not(tmp_path: Path) -> None:
    kills = KernelKills([counter(tmp_path, 4)])
    ending = ending_of(KILLED, kills)
    assert not ending.is_out_of_memory
    assert ending.signum == signal.SIGKILL


def test_each_of_the_kernels_kills_explains_one_death(tmp_path: Path) -> None:
    kills = KernelKills([counter(tmp_path, 0)])
    counter(tmp_path, 2)
    told = [ending_of(KILLED, kills).is_out_of_memory for _ in range(3)]
    assert told == [True, True, False]


def test_another_death_is_not_is_out_of_memory(tmp_path: Path) -> None:
    kills = KernelKills([counter(tmp_path, 0)])
    counter(tmp_path, 1)
    assert not ending_of(int(signal.SIGTERM), kills).is_out_of_memory
    assert ending_of(1 << 8, kills).cause == "exited with status 1"
    assert ending_of(137 << 8, kills).is_out_of_memory  # as a shell reports it


@pytest.mark.parametrize("content", ["", "oom_kill_disable 0\nunder_oom 0\n", "oom_kill many\n"])
def test_a_file_without_the_count_tells_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "memory.oom_control"
    path.write_text(content)
    kills = KernelKills([path, tmp_path / "missing"])
    assert not ending_of(KILLED, kills).is_out_of_memory


def test_the_counters_of_this_machine_are_found_where_it_has_them() -> None:
    assert bool(KernelKills().where) == (sys.platform == "linux")


@pytest.mark.process
def test_a_process_that_is_killed_here_is_not_taken_for_the_kernels() -> None:
    kills = KernelKills()
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    process.kill()
    _, status = os.waitpid(process.pid, 0)
    process.returncode = -signal.SIGKILL
    assert not ending_of(status, kills).is_out_of_memory


def test_a_worker_at_the_limit_of_its_memory_is_explained_and_counted_once(tmp_path: Path) -> None:
    kills = KernelKills([counter(tmp_path, 0)])
    counter(tmp_path, 1)
    ending = ending_of(KILLED, kills, exceeded_bytes=2 << 30)
    assert ending.is_out_of_memory
    assert ending.cause.startswith("used more than its memory request of 2.1 GB and was killed")
    assert not ending_of(KILLED, kills).is_out_of_memory
    assert ending_of(3 << 8, kills, exceeded_bytes=2 << 30).cause == "exited with status 3"
