"""What /proc says about a process and its descendants."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.runtime.usage import used
from holdfast.runtime.usage.sampler import Sampler
from holdfast.runtime.usage.used import Memory, Stat, table, trees

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc"),
]

MB = 1 << 20
# A process with 64 MB, and three forks that share them, one of them a child of another.
FAMILY = """
import os, signal, sys
kept = bytearray(os.urandom(1 << 16)) * 1024
def bear(generations):
    if os.fork() == 0:
        if generations:
            bear(generations - 1)
        os.write(1, b".")
        signal.pause()
bear(1); bear(0)
os.write(1, b".")
signal.pause()
"""


@pytest.fixture
def family() -> Iterator[int]:
    command = [sys.executable, "-S", "-c", FAMILY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as parent:
        assert parent.stdout is not None
        ready = b""
        while len(ready) < 4:
            ready += os.read(parent.stdout.fileno(), 4)
        yield parent.pid
        os.killpg(parent.pid, 9)


def test_memory_that_forks_share_counts_once_and_all_descendants_are_found(family: int) -> None:
    seen = Sampler(None, knows_pids=True).sample({"w": [family, []]})["w"]
    tree = trees([family], table())[family]
    assert len(tree) == 4
    assert 64 * MB < seen.memory_bytes < 100 * MB
    assert sum(table()[pid].resident_bytes for pid in tree) > 4 * 64 * MB
    assert seen.main_peak_bytes >= seen.main_bytes > 64 * MB
    assert seen.cpu_s > 0


def test_a_worker_that_has_ended_is_left_out() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        ended.wait()
        assert Sampler(None, knows_pids=True).sample({"w": [ended.pid, []]}) == {}


def test_the_memory_of_a_large_process_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 0.1, 19.0, 20.5, 20.6])  # a reading takes 0.1 s
    sizes = iter([70, 50])
    monkeypatch.setattr("holdfast.runtime.usage.used.time.monotonic", lambda: next(moments))
    monkeypatch.setattr(used, "_kilobytes", lambda *_: next(sizes))
    memory = Memory()
    assert memory.of(7, Stat(1, 0.1, 100), others=1) == 70
    assert memory.of(7, Stat(1, 0.2, 120), others=1) == 90  # as much more as its resident memory
    assert memory.of(7, Stat(1, 0.3, 120), others=1) == 50


def test_the_memory_of_a_process_that_does_nothing_is_read_every_few_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Readings take 0.3 ms each.
    moments = iter([0.0, 0.0003, 60.0, 180.0, 193.0, 193.0003, 253.0, 253.0003])
    sizes = iter([70, 50, 60])
    monkeypatch.setattr("holdfast.runtime.usage.used.time.monotonic", lambda: next(moments))
    monkeypatch.setattr(used, "_kilobytes", lambda *_: next(sizes))
    memory, waiting = Memory(), Stat(1, 0.1, 100)
    assert [memory.of(7, waiting, others=64) for _ in range(4)] == [70, 70, 70, 50]
    assert memory.of(7, Stat(1, 0.2, 100), others=64) == 60  # it has run


def test_trees_end_where_a_table_is_torn() -> None:
    def child_of(parent: int) -> Stat:
        return Stat(parent, 0.0, 0)

    torn = {2: child_of(3), 3: child_of(2), 4: child_of(1)}
    assert trees([2, 4, 9], torn) == {2: [2, 3], 4: [4]}
