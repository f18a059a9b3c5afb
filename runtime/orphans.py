"""Ends processes that user code moved out of its worker's process group and left behind (Linux).

A worker, and the warm parent above it, adopts processes that would otherwise become children of
init. So a process that a worker leaves behind becomes a child of the warm parent when the worker
ends, whatever its session, group or environment. Children of the warm parent that are not workers
get SIGTERM, and then SIGKILL. macOS does not list a process's children, so none are found there.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.runtime.usage.used import Stat, stat_of

# The time from SIGTERM to SIGKILL.
GRACE_S = 1.0
# After this time holdfast stops waiting: they hang in the kernel, or run as another user.
ORPHAN_DEADLINE_S = 2 * GRACE_S

_CHUNK_BYTES = 1 << 16
_NOBODY: frozenset[int] = frozenset()


def children(task: str = "thread-self") -> set[int]:
    """The pids of the children of this thread, or of another task; includes zombies."""
    try:
        # Without a file object this takes 7 µs instead of 10, for each worker that ends.
        fd = os.open(f"/proc/{task}/children", os.O_RDONLY)
        try:
            data = b""
            while chunk := os.read(fd, _CHUNK_BYTES):
                data += chunk
        finally:
            os.close(fd)
    except OSError:  # the system has no such file, or the task has just ended
        return set()
    return set(map(int, data.split()))


def is_child(pid: int, parent: int) -> bool:
    """True if `pid` is a process that `parent` has started."""
    return (process := process_of(pid)) is not None and process.parent == parent


def process_of(pid: int) -> Stat | None:
    """The process with this id; None if it has ended."""
    if sys.platform != "linux":
        return _process_elsewhere(pid)
    return stat_of(pid)  # psutil takes 0.1 ms, and its import 12 ms of each run


def _process_elsewhere(pid: int) -> Stat | None:
    import psutil

    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Stat(process.ppid(), times.user + times.system, process.memory_info().rss)
    except psutil.Error:
        return None


def descendants() -> set[int]:
    """All descendants of this process."""
    found: set[int] = set()
    new = children()
    while new:
        found |= new
        tasks = (task for pid in new for task in _tasks(pid))
        new = set().union(*map(children, tasks)) - found
    return found


def _tasks(pid: int) -> list[str]:
    try:
        return [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:  # it has just ended
        return []


class Orphans:
    """The children of this process that are not workers."""

    def __init__(self, workers: Iterable[int]) -> None:
        """`workers` are the pids of the workers; the caller changes it as they start and end."""
        self._workers = workers
        self._spared: set[int] = set()
        self._sent: dict[int, _SentSignal] = {}

    def spare_present(self) -> None:
        """Do not end the processes that exist now: the user's modules started them for all
        trials."""
        self._spared = descendants()

    def stop_sparing(self) -> None:
        """End also the processes that `spare_present` has spared."""
        self._spared = set()

    def forget(self, pid: int) -> None:
        """Called when `pid` was reaped: another process may get the same pid."""
        self._spared.discard(pid)
        self._sent.pop(pid, None)

    def end(self, now: float) -> frozenset[int]:
        """Send SIGTERM to new orphans, and SIGKILL to those whose grace is over. Returns those
        that still exist. Call it again when a child was reaped, and at `due_s`.
        """
        found = children().difference(self._workers, self._spared)
        if not found:  # the usual case
            self._sent = {}
            return _NOBODY
        pressed = {pid: self._press(pid, now) for pid in found if _is_outside(pid)}
        self._sent = {pid: sent for pid, sent in pressed.items() if sent}
        return frozenset(self._sent)

    @property
    def due_s(self) -> float:
        """When the grace of the next orphan is over; infinite if there is none."""
        return min((sent.until for sent in self._sent.values()), default=math.inf)

    def _press(self, pid: int, now: float) -> _SentSignal | None:
        """Send the next signal if it is due. Returns None if SIGKILL has not ended the process in
        time: holdfast then ignores it."""
        sent = self._sent.get(pid)
        if sent is not None and now < sent.until:
            return sent
        if sent is not None and sent.signum == signal.SIGKILL:
            self._spared.add(pid)
            return None
        signum = signal.SIGTERM if sent is None else signal.SIGKILL
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or changed its user
            os.kill(pid, signum)
        return _SentSignal(signum=signum, until=now + GRACE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentSignal:
    """The last signal to an orphan, and the time by which it should have ended."""

    signum: int
    until: float


def _is_outside(pid: int) -> bool:
    """True if the process is outside this process's own group. Modules may start processes in that
    group, which ends with this process."""
    try:
        return os.getpgid(pid) != os.getpgrp()
    except ProcessLookupError:
        return False


class Ended(NamedTuple):
    """A child that was reaped: the name of the worker ("" for another process), its exit status,
    and what it has used, as `holdfast.runtime.usage.used.Spent` reads it."""

    worker: str
    status: int
    spent: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Departure:
    """A worker that has ended. Its exit is reported when the orphans in `left` are gone."""

    ended: Ended
    left: frozenset[int]
    until: float


class Departures:
    """Workers that have ended. Each exit is reported when everything that the worker started is
    gone."""

    def __init__(
        self,
        orphans: Orphans,
        collect: Callable[[], list[Ended]],
        tell: Callable[[Ended], None],
    ) -> None:
        """`collect` reaps all children that have ended."""
        self._orphans = orphans
        self._collect = collect
        self._tell = tell
        self._waiting: list[_Departure] = []
        self._here = _NOBODY

    def reap(self, now: float) -> None:
        """Reap children, end orphans, and report the workers that left no orphans.

        A new orphan may come from any worker or orphan that has just ended, so all of these wait
        for it.
        """
        ended = self._collect()
        here = self._orphans.end(now)
        while more := self._collect():
            # More children have ended meanwhile, and their orphans may not be in `here` yet. When
            # no further child has ended, `here` has exactly the orphans of these.
            ended += more
            here = self._orphans.end(now)
        if here or self._waiting:
            self._wait_for(here, ended, now)
            return
        self._here = here
        for one in ended:  # the usual case
            if one.worker:
                self._tell(one)

    @property
    def due_s(self) -> float:
        """When to call `reap` although no child has ended; infinite if nothing is pending."""
        if not self._here and not self._waiting:  # the usual case
            return math.inf
        return min([self._orphans.due_s, *(one.until for one in self._waiting)])

    def _wait_for(self, here: frozenset[int], ended: list[Ended], now: float) -> None:
        new, self._here = here - self._here, here
        waiting = [
            one if one.left <= here else replace(one, left=(one.left | new) & here)
            for one in self._waiting
        ]
        waiting += [
            _Departure(ended=one, left=new, until=now + ORPHAN_DEADLINE_S)
            for one in ended
            if one.worker
        ]
        self._waiting = []
        for one in waiting:
            if one.left and now < one.until:
                self._waiting.append(one)
            else:
                self._tell(one.ended)
