"""Joins the warm parent's memory to huge pages, so that a fork copies a smaller page table.

After `import torch` 140 MB of heap are in 36,000 pages of 4 KiB. Copying their entries at a fork
and removing them at the worker's end took 22 ms of CPU per worker, and 7 ms with huge pages (Linux
6.18, 150 forks in turn). Joining them takes 0.1 to 0.3 s of CPU and, for the workers that live by
then, a second copy of what they share. So it begins only once workers start in quick succession,
and takes no more CPU after each fork than the fork itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

HUGE_BYTES = 1 << 21
# From include/uapi/asm-generic/mman-common.h, Linux 6.1: join the pages of a range now.
_MADV_COLLAPSE = 25
_SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"
# Smaller processes fork in less than a millisecond.
_LEAST_BYTES = 48 << 20
_FORKS, _SOON_S = 8, 1.0


class HugePages:
    """Joins this process's pages little by little, after forks.

    `clock` and `spent` return seconds of time and of this thread's CPU. `collapse` joins the pages
    of one huge page at an address.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        find: Callable[[], list[int]] | None = None,
        collapse: Callable[[int], None] | None = None,
    ) -> None:
        self._clock = clock
        self._spent = spent
        self._find = find or _find
        self._collapse = collapse
        self._forks = 0
        self._forked_at = -_SOON_S
        self._left: list[int] | None = None

    def after_fork(self, took_s: float) -> None:
        """Join pages for `took_s` seconds of CPU, as long as the fork took, if it is time to."""
        now, before = self._clock(), self._forked_at
        self._forked_at = now
        self._forks = self._forks + 1 if now - before <= _SOON_S else 0
        if self._forks < _FORKS:
            return
        if self._left is None:
            self._left = self._find()
        until = self._spent() + took_s
        while self._left and self._spent() < until:
            self._join(self._left.pop())

    def _join(self, address: int) -> None:
        if self._collapse is None:
            self._collapse = _kernels_collapse()
        self._collapse(address)


def huge_ranges(maps: Iterable[str]) -> list[int]:
    """The addresses of whole huge pages in the heap and in other private memory without a file,
    from the lines of /proc/self/maps."""
    found: list[int] = []
    for line in maps:
        span, access, _, _, _, *name = line.split(maxsplit=5)
        if access == "rw-p" and (not name or name[0].strip() == "[heap]"):
            start, end = (int(bound, 16) for bound in span.split("-"))
            first = -(-start // HUGE_BYTES) * HUGE_BYTES
            found += range(first, end - HUGE_BYTES + 1, HUGE_BYTES)
    return found


def _find() -> list[int]:
    """Nothing in a small process, without Linux, and where huge pages are switched off."""
    from holdfast.runtime.usage.processes import resident_bytes

    if sys.platform != "linux" or resident_bytes() < _LEAST_BYTES:
        return []
    try:
        with open(_SETTING) as setting, open("/proc/self/maps") as maps:
            return [] if "[never]" in setting.read() else huge_ranges(maps)
    except OSError:
        return []


def _kernels_collapse() -> Callable[[int], None]:
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def collapse(address: int) -> None:
        # An error changes nothing: an older kernel, a range without pages, or too little memory.
        madvise(address, HUGE_BYTES, _MADV_COLLAPSE)

    return collapse
