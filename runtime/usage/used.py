"""What a worker and everything that it started have used: samples, their sum, and how they are
read from /proc (Linux).

The numbers come from other processes, on other nodes, too: who reads a message checks them by
`holdfast.schema`.

The memory of a worker is the sum of the proportional set sizes (PSS) of its processes: a page that
several processes share counts in equal parts for each. Their resident memory would count the
dataset that DataLoader workers share with their parent once for each of them, and the imported
modules once for each trial. The kernel computes a PSS page by page (42 ms for 2 GB here), so a
large one is read less often, and adjusted by the change of the resident memory in between. So is
that of a process that does nothing, where only others could change it: 64 workers that wait took
22 ms, nearly all of a sample.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated

from holdfast.dataclass import dataclass
from holdfast.schema import Between

# The part of one CPU that reading PSS may take, and that of processes that have not run since.
_SHARE, _IDLE_SHARE = 0.005, 0.0001
# The longest time without reading it because of the latter.
_IDLE_S = 600.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Stat:
    """A process: its parent, the CPU time of itself and the children it waited for, its resident
    memory."""

    parent: int
    cpu_s: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class _Known:
    """The PSS of a process, less its resident memory, when it was last read; and when it is read
    again, `idle_due_s` if the process is still at `stat`."""

    beyond_resident: int
    stat: Stat
    due_s: float
    idle_due_s: float


class Memory:
    """The PSS of processes. Remembers what it has read."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def keep_only(self, pids: Collection[int]) -> None:
        """Forget processes that have ended: another one may get the same pid."""
        self._known = {pid: known for pid, known in self._known.items() if pid in pids}

    def of(self, pid: int, stat: Stat, others: int) -> int:
        """The PSS of a process with this `stat`, one of `others` that are read."""
        now = time.monotonic()
        known = self._known.get(pid)
        if known is None or now >= (known.idle_due_s if stat == known.stat else known.due_s):
            pss = _kilobytes(pid, "smaps_rollup", _PSS)
            took = (time.monotonic() - now) * others
            beyond = 0 if pss is None else pss - stat.resident_bytes
            due_s = now + took / _SHARE
            idle_due_s = max(due_s, now + min(took / _IDLE_SHARE, _IDLE_S))
            known = self._known[pid] = _Known(beyond, stat, due_s, idle_due_s)
        return max(0, stat.resident_bytes + known.beyond_resident)


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not say."""
    fields = _read("/proc/self/statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def peak_bytes(pid: int) -> int:
    """The largest resident memory of a process so far; 0 if it has ended."""
    return _kilobytes(pid, "status", _PEAK) or 0


def table() -> dict[int, Stat]:
    """All processes of this machine, or of this container."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (stat := stat_of(name)) is not None:
            found[int(name)] = stat
    return found


def trees(roots: Collection[int], processes: Mapping[int, Stat]) -> dict[int, list[int]]:
    """For each root, itself and its descendants, if it is among the `processes`."""
    children: dict[int, list[int]] = {}
    for pid, stat in processes.items():
        children.setdefault(stat.parent, []).append(pid)
    return {root: [*_below(root, children)] for root in roots if root in processes}


def _below(root: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    left, seen = [root], {root}
    while left:
        pid = left.pop()
        yield pid
        new = [child for child in children.get(pid, ()) if child not in seen]
        seen.update(new)
        left += new


def stat_of(pid: int | str) -> Stat | None:
    """The process with this id; None if it has ended, or the system has no /proc."""
    data = _read(f"/proc/{pid}/stat")
    # The name, in brackets, may have spaces and brackets.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 22:
        return None
    ticks = sum(map(int, fields[11:15]))
    return Stat(int(fields[1]), ticks / _TICKS_PER_S, int(fields[21]) * _PAGE)


def _kilobytes(pid: int, name: str, line: re.Pattern[bytes]) -> int | None:
    found = line.search(_read(f"/proc/{pid}/{name}"))
    return None if found is None else int(found[1]) * 1024


def _read(path: str) -> bytes:
    """The first 8 KiB, which is all of these files; b"" if the process has ended, or is another
    user's."""
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            return os.read(fd, 8192)
        finally:
            os.close(fd)
    except OSError:
        return b""


# Within what any machine has.
Bytes = Annotated[int, Between(0, 1 << 60)]
Seconds = Annotated[float, Between(0, 1e12)]
Share = Annotated[float, Between(0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What one worker has used since its start.

    `memory_bytes` is the largest amount of memory, `gpu_memory_bytes` that of the GPUs' memory,
    `gpu_utilisation` the mean share (0 to 1) of the time in which its GPUs computed; None if that
    is not known.
    """

    wall_s: Seconds
    cpu_s: Seconds
    memory_bytes: Bytes
    gpu_memory_bytes: Bytes | None = None
    gpu_utilisation: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the kernel has counted of a worker that has ended, and of children that it waited for.

    `largest_bytes` is the largest resident memory of one process. `shared_bytes` is the part that
    a forked worker shares with the warm parent. `exceeded`: the kernel killed a process of it,
    because all together used more memory than was requested.
    """

    wall_s: Seconds
    cpu_s: Seconds
    largest_bytes: Bytes
    shared_bytes: Bytes = 0
    exceeded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a worker and its descendants.

    `memory_bytes` is what they use now; `main_bytes` is the worker's own resident memory now, and
    `main_peak_bytes` its largest so far.
    """

    cpu_s: Seconds
    memory_bytes: Bytes
    main_bytes: Bytes
    main_peak_bytes: Bytes
    gpu_memory_bytes: Bytes | None = None
    gpu_utilisation: Share | None = None


class Account:
    """Adds up the samples of one worker."""

    def __init__(self) -> None:
        self._cpu_s = 0.0
        self._peak = self._gpu_peak = 0
        # What the last sample has in addition to the worker's own resident memory; it may be
        # negative, because shared pages count only in part.
        self._beyond_main: int | None = None
        self._utilisations: list[float] = []
        self._has_gpu = False

    def add(self, sample: Sample) -> None:
        self._cpu_s = max(self._cpu_s, sample.cpu_s)
        self._beyond_main = sample.memory_bytes - sample.main_bytes
        self._peak_at(sample.main_peak_bytes)
        if sample.gpu_memory_bytes is not None:
            self._has_gpu = True
            self._gpu_peak = max(self._gpu_peak, sample.gpu_memory_bytes)
        if sample.gpu_utilisation is not None:
            self._utilisations.append(sample.gpu_utilisation)

    def so_far(self, wall_s: float) -> Used | None:
        """None before the first sample."""
        return None if self._beyond_main is None else self._used(wall_s)

    def at_exit(self, spent: Spent) -> Used:
        """The kernel's counts include the time since the last sample. They lack children that the
        worker has not waited for, which the samples have."""
        self._cpu_s = max(self._cpu_s, spent.cpu_s)
        if self._beyond_main is None:  # too short for a sample
            self._beyond_main = -spent.shared_bytes
        self._peak_at(spent.largest_bytes)
        return self._used(spent.wall_s)

    def _peak_at(self, main_peak: int) -> None:
        assert self._beyond_main is not None
        self._peak = max(self._peak, main_peak + self._beyond_main, 0)

    def _used(self, wall_s: float) -> Used:
        shares = self._utilisations
        return Used(
            wall_s=wall_s,
            cpu_s=self._cpu_s,
            memory_bytes=self._peak,
            gpu_memory_bytes=self._gpu_peak if self._has_gpu else None,
            gpu_utilisation=sum(shares) / len(shares) if shares else None,
        )
