"""The child processes of a warm parent: its workers, and the orphans that workers leave behind.

This is the first step after a worker's death, such as by SIGKILL: `Children._collect` reaps it and
kills the rest of its process group. The last step is the machine's, in `scheduler/failing.py`.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.runtime import process_control
from holdfast.runtime.orphans import ORPHAN_DEADLINE_S, Departures, Ended, Orphans
from holdfast.runtime.usage.used import Spent

if TYPE_CHECKING:
    from holdfast.runtime.warm.memory_groups import MemoryGroup

# The unit of `ru_maxrss`.
_RSS_BYTES = 1 if sys.platform == "darwin" else 1024


class Children:
    """The children of this process; `waker` is readable when one of them has ended."""

    def __init__(self, tell_exit: Callable[[Ended], None]) -> None:
        """`tell_exit` is called with a worker that has ended, when everything that it started is
        gone."""
        self.waker, self._wakes = socket.socketpair()
        for end in (self.waker, self._wakes):
            end.setblocking(False)
        self._workers: dict[int, str] = {}
        # Since when each process runs, and the memory that it shares with this one.
        self._begun: dict[int, tuple[float, int]] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._tell_exit = tell_exit
        self._orphans = Orphans(self._workers)
        self._departures = Departures(self._orphans, self._collect, self._tell)

    def watch(self) -> None:
        """Make the end of a child wake `waker`."""
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        process_control.set_blocked(False, signal.SIGCHLD)

    def add(
        self, pid: int, worker: str, shared_bytes: int = 0, group: MemoryGroup | None = None
    ) -> None:
        """`shared_bytes` of its memory are shared with this process; `group` limits it."""
        self._workers[pid] = worker
        self._begun[pid] = time.monotonic(), shared_bytes
        if group is not None:
            self._groups[worker] = group

    def spare_present(self) -> None:
        """Do not end the processes that exist now: the user's modules have started them."""
        self._orphans.spare_present()

    def signal(self, worker: str, signum: int) -> None:
        """Send a signal to a worker. SIGKILL goes to its whole process group."""
        for pid, name in self._workers.items():
            if name == worker:
                if signum == signal.SIGKILL:
                    process_control.kill_group(pid)
                else:
                    os.kill(pid, signum)

    @property
    def ms_until_due(self) -> float | None:
        """Milliseconds until `settle` must be called although no child has ended; None for
        never."""
        return _ms_until(self._departures.due_s)

    def settle(self) -> None:
        """Reap the children that have ended, end orphans, and report exits."""
        with suppress(BlockingIOError):  # it is due, but no child has ended
            self.waker.recv(4096)
        self._departures.settle(time.monotonic())

    def end(self) -> None:
        """Kill all workers, and wait for them and for orphans, for `ORPHAN_DEADLINE_S` at most."""
        for pid in list(self._workers):
            process_control.kill_group(pid)
        self._outlive()
        for group in self._groups.values():
            group.remove()

    def end_all(self) -> None:
        """After `end`: also end the processes that the user's modules have moved out of this
        process group at their import."""
        self._orphans.stop_sparing()
        self._outlive()

    def close(self) -> None:
        """In a forked child: close what belongs to the parent."""
        self.waker.close()
        self._wakes.close()

    def _outlive(self) -> None:
        poll = select.poll()
        poll.register(self.waker, select.POLLIN)
        now = time.monotonic()
        deadline = now + ORPHAN_DEADLINE_S
        while now < deadline:
            self._collect()
            if not self._orphans.end(now) and not self._workers:
                return
            poll.poll(_ms_until(min(deadline, self._orphans.due_s)))
            with suppress(BlockingIOError):  # it is due, but no child has ended
                self.waker.recv(4096)
            now = time.monotonic()

    def _collect(self) -> list[Ended]:
        """Reap all children that have ended."""
        ended: list[Ended] = []
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                worker = self._workers.pop(pid, "")
                spent: list[Any] = []
                if worker:
                    began, shared = self._begun.pop(pid)
                    spent = Spent(
                        wall_s=time.monotonic() - began,
                        cpu_s=usage.ru_utime + usage.ru_stime,
                        largest_bytes=usage.ru_maxrss * _RSS_BYTES,
                        shared_bytes=shared,
                    ).plain()
                    # The processes that the worker started must not outlive it.
                    process_control.kill_group(pid)
                else:
                    self._orphans.forget(pid)
                ended.append(Ended(worker, status, spent))
        return ended

    def _tell(self, ended: Ended) -> None:
        group = self._groups.pop(ended.worker, None)
        if group is not None:
            *counted, _ = ended.spent
            ended = ended._replace(spent=[*counted, group.has_exceeded()])
            group.remove()
        self._tell_exit(ended)


def _ms_until(due_s: float) -> float | None:
    """The timeout for `poll`; None means forever."""
    return None if due_s == math.inf else 1000 * max(0.0, due_s - time.monotonic())


def _ignore(*_: Any) -> None:
    """The kernel writes to the wake-up socket only if SIGCHLD has a handler."""
