"""Real processes under test: their messages and ends as events, and a check that none is left."""

from __future__ import annotations

import asyncio
import gc
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from holdfast.runtime.launcher import ExitCause
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message

# Long enough for a busy machine; only a failing test waits this long.
PATIENCE_S = 30.0


class Heard:
    """A listener that stores the messages of a worker or service, and lets a test wait for
    them."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._used: asyncio.Queue[Used] = asyncio.Queue()
        self.ending: ExitCause | None = None
        self._exit: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_message(self, message: Message) -> None:
        assert not self._exit.done(), f"after the exit came {message!r}"
        self._messages.put_nowait(message)

    def on_used(self, used: Used) -> None:
        self._used.put_nowait(used)

    def on_exit(self, ending: ExitCause) -> None:
        self.ending = ending
        self._exit.set_result(ending.cause)

    async def message(self) -> Message:
        """The next message; waits for it if necessary."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._messages.get()

    async def used(self) -> Used:
        """The next word about what it has used."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._used.get()

    async def exit(self) -> str:
        """The cause of the process's end."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self._exit)

    @property
    def exiting(self) -> asyncio.Future[str]:
        """Done with the cause when the exit is reported."""
        return self._exit

    @property
    def has_exited(self) -> bool:
        return self._exit.done()

    @property
    def unread(self) -> int:
        return self._messages.qsize()


class Lifeline:
    """A pipe whose writing end every process of a test inherits: it ends when all of them have
    ended.

    This includes unknown grandchildren, as long as they were forked.
    """

    def __init__(self) -> None:
        self._reading, self.fd = os.pipe()

    def wait_until_all_are_gone(self) -> None:
        """Raises AssertionError when something still holds the pipe after `PATIENCE_S`."""
        self.let_go()
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), "a process is left that holds the pipe"
        assert os.read(self._reading, 1) == b""

    def let_go(self) -> None:
        """Close this process's own writing end."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        self.let_go()
        os.close(self._reading)


@contextmanager
def no_process_is_left() -> Iterator[None]:
    """Raises AssertionError if this process has more children at the end than at the beginning."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    # Whoever waits for one that has ended may be late on a busy machine.
    ended = [one for one in left if one.status() == psutil.STATUS_ZOMBIE]
    reaped, _ = psutil.wait_procs(ended, timeout=30)
    left = [one for one in left if one not in reaped]
    assert not left, f"left behind: {left}"


def warm_parent() -> psutil.Process:
    """The warm parent, among the children of the tests, which may include servers and zombies of
    other tests."""
    (child,) = (
        child
        for child in psutil.Process().children()
        if b"holdfast.runtime.warm.parent" in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    )
    return child


def count_fds() -> int:
    """How many descriptors this process has open, without those of garbage from earlier tests."""
    gc.collect()
    return psutil.Process().num_fds()


def wait_for_end(pid: int) -> None:
    """Wait until a process, which need not be a child, is gone or a zombie.

    Raises AssertionError after `PATIENCE_S`.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), f"process {pid} is still there"
    finally:
        os.close(pidfd)
