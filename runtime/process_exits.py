"""How the loop learns that a process has ended, and what it does where it does not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

PATIENCE_S = 5.0


def on_end(process: subprocess.Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` on the loop once the process has ended; `process.poll()` then has its status.

    Returns what stops the watch. The end of a socket would not do: a child of the process may hold
    it open.
    """
    pidfd = _pidfd(process.pid)
    return _watch_thread(process, tell) if pidfd is None else _watch_pidfd(pidfd, tell)


async def reaped(process: subprocess.Popen[bytes], patience_s: float | None = None) -> str:
    """Wait for a process that has been asked to end. After `patience_s` seconds (`PATIENCE_S`)
    kill it, and after as many more leave it. Returns what was done, "" where it just ended."""
    patience_s = PATIENCE_S if patience_s is None else patience_s
    if process.poll() is not None:
        return ""
    ended = asyncio.Event()
    stop = on_end(process, ended.set)
    done = ""
    try:
        if not await happens(ended, patience_s):
            done = f"did not end within {patience_s:g} s and was killed by holdfast"
            process.kill()
            if not await happens(ended, patience_s):
                return leave(process)
    finally:
        stop()
    return done if process.poll() is not None else leave(process)


def leave(process: subprocess.Popen[bytes]) -> str:
    """Wait no more for a process that SIGKILL has not ended. Returns what to tell of it."""
    process.returncode = -signal.SIGKILL  # so that Popen waits for it no more
    return still_there(process.pid)


def still_there(pid: int) -> str:
    """Of a process that SIGKILL has not ended: it hangs in the kernel, and runs no code of its own
    any more. Follows the name of the process."""
    return (
        f"(pid {pid}) still exists after SIGKILL. It hangs in the kernel, probably in a call to a "
        f"disk or network file system that does not answer. holdfast does not wait for it"
    )


def survives(pid: int) -> bool:
    """Whether the process, which is another than this one, still exists after SIGKILL."""
    import psutil

    try:
        status = psutil.Process(pid).status()
    except psutil.Error:
        return False
    return pid != os.getpid() and status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Whether the event is set within so many seconds."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _pidfd(pid: int) -> int | None:
    """None where the kernel has none: macOS, Linux before 5.3, some sandboxes."""
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
    """A daemon, unlike the threads of an executor: nothing waits for it if the process stays."""
    loop, told = asyncio.get_running_loop(), [tell]

    def ended() -> None:
        if told:
            told.pop()()

    def wait() -> None:
        process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=wait, name="holdfast-exit", daemon=True).start()
    return told.clear
