"""Waits on the loop for the end of processes, and watches for stopped ones.

Other processes would wait for a stopped one (SIGSTOP) forever. So holdfast continues it (SIGCONT),
and kills it if it is stopped again. The kernel says which processes are stopped, so a process that
is only slow is not affected. A short stop, or one of the whole job by a batch system, is left
alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from holdfast.dataclass import dataclass
from holdfast.late import is_late
from holdfast.runtime import process_control
from holdfast.runtime.tasks import Rate, happens

# The number of checks per deadline; each takes 20 µs per process.
_CHECKS = 4
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

    async def run(self) -> None:
        """Check until cancelled; a deadline of 0 disables it."""
        loop = asyncio.get_running_loop()
        while self._deadline_s:
            due = loop.time() + self._deadline_s / _CHECKS
            await asyncio.sleep(due - loop.time())
            self.check(due, loop.time())

    def check(self, due: float, now: float) -> None:
        """Check once. `due` is the planned time, `now` the actual one."""
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
    """True if a signal has stopped the process; a debugger does not count."""
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


EXIT_DEADLINE_S = 5.0


def on_end(process: subprocess.Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` on the loop when the process has ended; `process.poll()` then has its status.

    Returns a function that stops the watch. The end of a socket is not enough, because a child of
    the process may keep it open.
    """
    pidfd = _pidfd(process.pid)
    return _watch_thread(process, tell) if pidfd is None else _watch_pidfd(pidfd, tell)


async def reaped(process: subprocess.Popen[bytes], deadline_s: float | None = None) -> str:
    """Wait for a process that was ordered to end. After `deadline_s` seconds (default
    `EXIT_DEADLINE_S`) kill it, and after as many more stop waiting. Returns what was done; "" if
    it ended by itself."""
    deadline_s = EXIT_DEADLINE_S if deadline_s is None else deadline_s
    if process.poll() is not None:
        return ""
    ended = asyncio.Event()
    stop = on_end(process, ended.set)
    done = ""
    try:
        if not await happens(ended, deadline_s):
            done = f"did not end within {deadline_s:g} s and was killed by holdfast"
            process.kill()
            if not await happens(ended, deadline_s):
                return abandon(process)
    finally:
        stop()
    return done if process.poll() is not None else abandon(process)


def abandon(process: subprocess.Popen[bytes]) -> str:
    """Stop waiting for a process that survived SIGKILL. Returns a warning about it."""
    process.returncode = -signal.SIGKILL  # so that Popen does not wait for it, either
    return still_there(process.pid)


def still_there(pid: int) -> str:
    """The warning about a process that survived SIGKILL, to follow the name of the process. It
    hangs in the kernel and no longer runs its own code."""
    return (
        f"(pid {pid}) still exists after SIGKILL. It hangs in the kernel, probably in a call to a "
        f"disk or network file system that does not answer. holdfast does not wait for it"
    )


def survives(pid: int) -> bool:
    """True if the process still exists after SIGKILL; not for this process."""
    import psutil

    try:
        status = psutil.Process(pid).status()
    except psutil.Error:
        return False
    return pid != os.getpid() and status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def _pidfd(pid: int) -> int | None:
    """A pidfd; None if the system has none: macOS, Linux before 5.3, some sandboxes."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _watch_pidfd(pidfd: int, tell: Callable[[], None]) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    watched = [pidfd]

    def stop() -> None:
        while watched:
            loop.remove_reader(watched[0])
            os.close(watched.pop())

    def ended() -> None:
        stop()
        tell()

    loop.add_reader(pidfd, ended)
    return stop


def _watch_thread(
    process: subprocess.Popen[bytes], tell: Callable[[], None]
) -> Callable[[], None]:
    """Watch in a daemon thread, which nothing waits for; executors join theirs at exit."""
    loop, told = asyncio.get_running_loop(), [tell]

    def ended() -> None:
        if told:
            told.pop()()

    def wait() -> None:
        process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=wait, name="holdfast-exit", daemon=True).start()
    return told.clear
