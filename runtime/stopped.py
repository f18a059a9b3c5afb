"""Continues or kills holdfast's processes that were stopped from outside (SIGSTOP).

Other processes would wait for a stopped one forever. So holdfast continues it (SIGCONT), and kills
it if it is stopped again. The kernel says which processes are stopped, so a process that is only
slow is not affected. A short stop, or one of the whole job by a batch system, is left alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable

from holdfast.dataclass import dataclass
from holdfast.late import is_late
from holdfast.runtime import process_control
from holdfast.runtime.deadlines import Rate

# The number of looks per deadline; each takes 20 µs per process.
_LOOKS = 4
# Within so many deadlines it is the same mishap.
_SOON = 10
_STOPPED = b"T"


@dataclass(frozen=True, slots=True)
class Watched:
    """A process, its name in messages, and a function that kills it for a reason."""

    pid: int
    name: str
    kill: Callable[[str], None]


class StoppedWatch:
    """Continues processes that have been stopped for `deadline_s`, and kills those that are
    stopped for as long again soon afterwards. `tell` is called for each process that is continued.

    It polls, because the kernel informs only the parent, by SIGCHLD, whose handler belongs to the
    user.
    """

    def __init__(
        self,
        deadline_s: float,
        watched: Callable[[], Iterable[Watched]],
        tell: Callable[[str], None],
        is_stopped: Callable[[int], bool] | None = None,
    ) -> None:
        self._deadline_s = deadline_s
        self._watched = watched
        self._tell = tell
        self._is_stopped = is_stopped or is_stopped_now
        self._since: dict[int, float] = {}
        self._continued: dict[int, Rate] = {}

    async def keep_looking(self) -> None:
        """Look until cancelled; a deadline of 0 disables it."""
        loop = asyncio.get_running_loop()
        while self._deadline_s:
            due = loop.time() + self._deadline_s / _LOOKS
            await asyncio.sleep(due - loop.time())
            self.look(due, loop.time())

    def look(self, due: float, now: float) -> None:
        """Look once. `due` is the planned time, `now` the actual one."""
        if is_late(due, now):
            self._since.clear()
        stopped = {one.pid: one for one in self._watched() if self._is_stopped(one.pid)}
        self._since = {pid: self._since.get(pid, now) for pid in stopped}
        for pid, one in stopped.items():
            if now - self._since[pid] >= self._deadline_s:
                self._act_on(one, now)

    def _act_on(self, one: Watched, now: float) -> None:
        how = (
            f"was stopped from outside (SIGSTOP) for {self._deadline_s:g} s "
            f"(HOLDFAST_STOPPED_DEADLINE_S)"
        )
        rate = self._continued.setdefault(one.pid, Rate(1, _SOON * self._deadline_s))
        if not rate.allows(now):
            one.kill(f"it {how}, and again after it had been continued")
            return
        del self._since[one.pid]
        # In this order: whoever reads the message may stop the process again.
        process_control.kill_group(one.pid, signal.SIGCONT)
        self._tell(f"{one.name} (pid {one.pid}) {how}: holdfast continues it (SIGCONT)")


def is_stopped_now(pid: int) -> bool:
    """Whether a signal has stopped the process; a debugger does not count."""
    if pid == os.getpid():
        return False
    if sys.platform != "linux":
        return _is_stopped_elsewhere(pid)
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:  # it has ended
        return False
    try:
        # The program's name comes before the state and may contain anything, so search from the
        # end.
        return os.read(fd, 512).rpartition(b") ")[2][:1] == _STOPPED
    except OSError:
        return False
    finally:
        os.close(fd)


def _is_stopped_elsewhere(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
