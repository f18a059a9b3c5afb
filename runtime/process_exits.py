"""How the loop learns that a process has ended, without asking again and again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable

PATIENCE_S = 5.0


def on_end(process: subprocess.Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` on the loop once the process has ended; `process.wait()` then returns at once.

    Returns what stops the watch. The end of a socket is no such sign: whatever the process had
    forked may hold it open.
    """
    pidfd = _pidfd(process.pid)
    return _watch_thread(process, tell) if pidfd is None else _watch_pidfd(pidfd, tell)


async def reaped(process: subprocess.Popen[bytes], patience_s: float = PATIENCE_S) -> str:
    """Wait for a process that was told to end; after `patience_s` seconds kill it, and after as
    many more leave it. Returns what was done, "" where it ended by itself."""
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
    process.wait()
    return done


def leave(process: subprocess.Popen[bytes]) -> str:
    """Wait no more for a process that SIGKILL has not ended: it hangs in the kernel, mostly
    because of a disk or a network file system. It does nothing of its own any more."""
    process.returncode = -signal.SIGKILL  # so that nobody waits for it
    return (
        f"(pid {process.pid}) hangs in the kernel and does not end, though it was killed: it is "
        f"left. Look at the disk or network file system that it used"
    )


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
    waiting = asyncio.get_running_loop().run_in_executor(None, process.wait)
    told = [tell]
    waiting.add_done_callback(lambda _: told.pop()() if told else None)
    return told.clear
