"""When the warm parent joins its pages, and which."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.runtime.warm.preloading import HUGE_BYTES, HugePages, huge_ranges

MAPS = """\
560000200000-560000800000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 r--p 00000000 fe:00 42                         /lib/x.so
7f0000400000-7f0000800000 rw-p 00000000 fe:00 42                         /lib/x.so
7f0010100000-7f0010600000 rw-p 00000000 00:00 0 \n\
7f0020000000-7f0020100000 rw-p 00000000 00:00 0 \n\
7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0                          [stack]
"""
# Holds 64 MB in small pages, forks often, and prints the huge pages that it has then.
FORKS = """
import mmap, os, time
from holdfast.runtime.warm.preloading import HugePages
kept = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kept.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, len(kept), 4096):
    kept[at] = at // 4096 % 251
kept.madvise(mmap.MADV_HUGEPAGE)
pages = HugePages(clock=lambda: 0.0)
for _ in range(12):
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    pages.after_fork(took_s=60.0)
assert all(kept[at] == at // 4096 % 251 for at in range(0, len(kept), 4096))
for line in open("/proc/self/smaps_rollup"):
    if line.startswith("AnonHugePages"):
        print(int(line.split()[1]) * 1024)
"""


class Parent:
    """A warm parent whose forks take 2 ms, and joining a huge page 1 ms."""

    def __init__(self, pages: int) -> None:
        self.now = self.spent_s = 0.0
        self.joined: list[int] = []
        self.pages = HugePages(
            clock=lambda: self.now,
            spent=lambda: self.spent_s,
            find=lambda: list(range(pages)),
            collapse=self._collapse,
        )

    def _collapse(self, address: int) -> None:
        self.joined.append(address)
        self.spent_s += 0.001

    def fork(self, times: int, *, every_s: float) -> None:
        for _ in range(times):
            self.now += every_s
            self.pages.after_fork(0.002)


def test_workers_that_start_in_quick_succession_let_their_parent_join_its_pages_bit_by_bit() -> (
    None
):
    parent = Parent(pages=5)
    parent.fork(8, every_s=0.01)
    assert parent.joined == []
    parent.fork(1, every_s=0.01)
    assert len(parent.joined) == 2
    parent.fork(5, every_s=0.01)
    assert sorted(parent.joined) == [0, 1, 2, 3, 4]


def test_a_parent_whose_workers_run_for_long_joins_nothing() -> None:
    parent = Parent(pages=5)
    parent.fork(50, every_s=1.5)
    assert parent.joined == []


def test_only_whole_huge_pages_of_private_memory_without_a_file_are_joined() -> None:
    assert huge_ranges(MAPS.splitlines(keepends=True)) == [
        *(0x560000200000 + each * HUGE_BYTES for each in range(3)),
        0x7F0010200000,
        0x7F0010400000,
    ]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such pages")
def test_the_kernel_joins_them_and_their_content_stays() -> None:
    command = [sys.executable, "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if int(done.stdout) == 0:
        pytest.skip("this kernel joins no pages on request (Linux 6.1), or has them switched off")
    assert int(done.stdout) > 32 << 20
