"""Processes that user code moved out of its worker's process group and left behind (Linux).

A worker, and the warm parent above it, adopts processes that would otherwise become children of
init. So whatever a worker leaves is a child of the warm parent from the moment the worker ends,
whatever its session, group or environment. Children there that are not workers get SIGTERM, and
then SIGKILL. A system that does not list a process's children (macOS) shows none.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from holdfast.dataclass import dataclass

# From SIGTERM to SIGKILL.
GRACE_S = 1.0
# After this they are left: they hang in the kernel, or run as another user.
PATIENCE_S = 2 * GRACE_S

_CHUNK_BYTES = 1 << 16
_NOBODY: frozenset[int] = frozenset()


def children(task: str = "thread-self") -> set[int]:
    """The process ids of the children of this thread, or of another task, ended ones too."""
    try:
        # Bare descriptors: 7 µs for each worker that ends, where a file object makes it 10.
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
    """Whether `pid` is a process that `parent` has started."""
    import psutil

    try:
        return pid > 1 and psutil.Process(pid).ppid() == parent
    except psutil.Error:
        return False


def descendants() -> set[int]:
    """Children and their children, down to the last."""
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
    """The children of this process that are no workers."""

    def __init__(self, workers: Iterable[int]) -> None:
        """`workers` are the processes that are: others come and go."""
        self._workers = workers
        self._spared: set[int] = set()
        self._told: dict[int, _Told] = {}

    def spare_present(self) -> None:
        """Spare those that exist now: the user's modules started them, for all trials."""
        self._spared = descendants()

    def spare_nobody(self) -> None:
        self._spared = set()

    def forget(self, pid: int) -> None:
        """It was reaped: from now on another process may have its number."""
        self._spared.discard(pid)
        self._told.pop(pid, None)

    def end(self, now: float) -> frozenset[int]:
        """Send new ones SIGTERM, and SIGKILL to those whose grace is over. Returns those that are
        still there. Call it again when a child was reaped, and at `due_s`.
        """
        found = children().difference(self._workers, self._spared)
        if not found:  # nearly always
            self._told = {}
            return _NOBODY
        pressed = {pid: self._press(pid, now) for pid in found if _is_outside(pid)}
        self._told = {pid: told for pid, told in pressed.items() if told}
        return frozenset(self._told)

    @property
    def due_s(self) -> float:
        """When the next one's time is over; infinite if there is none."""
        return min((told.until for told in self._told.values()), default=math.inf)

    def _press(self, pid: int, now: float) -> _Told | None:
        """None for one that SIGKILL has not ended in time: it is left."""
        told = self._told.get(pid)
        if told is not None and now < told.until:
            return told
        if told is not None and told.signum == signal.SIGKILL:
            self._spared.add(pid)
            return None
        signum = signal.SIGTERM if told is None else signal.SIGKILL
        with suppress(ProcessLookupError, PermissionError):  # gone, or another user's by now
            os.kill(pid, signum)
        return _Told(signum=signum, until=now + GRACE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """The last signal to an orphan, and until when it may take to end."""

    signum: int
    until: float


def _is_outside(pid: int) -> bool:
    """Not in this process's own group, which ends with it: modules start processes there."""
    try:
        return os.getpgid(pid) != os.getpgrp()
    except ProcessLookupError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Departure:
    """A worker that has ended. Its exit is reported once those in `left` are gone."""

    worker: str
    status: int
    left: frozenset[int]
    until: float


# The name of a worker, "" for a process that is none, and how it ended.
Ended = tuple[str, int]


class Departures:
    """Workers that have ended. Each exit is held back until what the worker started is gone."""

    def __init__(
        self,
        orphans: Orphans,
        collect: Callable[[], list[Ended]],
        tell: Callable[[str, int], None],
    ) -> None:
        """`collect` reaps all that have ended."""
        self._orphans = orphans
        self._collect = collect
        self._tell = tell
        self._waiting: list[_Departure] = []
        self._here = _NOBODY

    def settle(self, now: float) -> None:
        """Reap, end the orphans, and report the workers that left none.

        A new orphan may be of any worker, or orphan, that has ended now. All of these wait for it.
        """
        ended = self._collect()
        here = self._orphans.end(now)
        while more := self._collect():
            # Their orphans may be among those, but need not be yet. Once no other child has ended
            # in between, all of theirs are there, and only theirs.
            ended += more
            here = self._orphans.end(now)
        if here or self._waiting:
            self._wait_for(here, ended, now)
            return
        self._here = here
        for worker, status in ended:  # nearly always
            if worker:
                self._tell(worker, status)

    @property
    def due_s(self) -> float:
        """When to settle again although no child has ended; infinite if none is left."""
        if not self._here and not self._waiting:  # nearly always
            return math.inf
        return min([self._orphans.due_s, *(one.until for one in self._waiting)])

    def _wait_for(self, here: frozenset[int], ended: list[Ended], now: float) -> None:
        new, self._here = here - self._here, here
        waiting = [
            one if one.left <= here else replace(one, left=(one.left | new) & here)
            for one in self._waiting
        ]
        waiting += [
            _Departure(worker=worker, status=status, left=new, until=now + PATIENCE_S)
            for worker, status in ended
            if worker
        ]
        self._waiting = []
        for one in waiting:
            if one.left and now < one.until:
                self._waiting.append(one)
            else:
                self._tell(one.worker, one.status)
