"""Waits on the loop for the end of a process, and kills it if it does not end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from holdfast.runtime.deadlines import happens

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
    """Whether the process still exists after SIGKILL; not for this process."""
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
