"""Services: processes or threads that do slow work for the controller. A process that dies is
restarted, unless it dies too often."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from holdfast.runtime.connection import Connection
from holdfast.runtime.interpreter import start_child
from holdfast.runtime.launcher import describe_code
from holdfast.runtime.orphans import process_of
from holdfast.runtime.process_control import Title
from holdfast.runtime.process_exits import EXIT_DEADLINE_S, Watched, on_end, reaped, still_there
from holdfast.runtime.service_process import SCRIPTS
from holdfast.runtime.tasks import Rate, TaskScope, happens
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message
from holdfast.text.errors import message_of, type_name

_TITLE = Title("service")


class BackgroundService(Protocol):
    """The controller's interface to a service. Its methods are called in the loop's thread."""

    ended: asyncio.Future[str]

    @property
    def pid(self) -> int: ...

    @property
    def is_gone(self) -> bool:
        """True if it has ended, or the controller has stopped waiting for it."""

    def send(self, message: Message) -> None: ...

    async def gone(self) -> str:
        """Wait until it has ended. Returns the cause in words; "" if it ended normally."""

    async def close(self) -> str:
        """End it, and wait for a limited time. Returns a warning for the user, or ""."""

    def kill(self, why: str = "") -> None:
        """Kill it; `why` is reported as the cause."""


class Service:
    """A service in a child process, connected by a socket pair.

    It ends when the connection ends, and the kernel kills it if this process dies.
    """

    def __init__(
        self,
        entry: str,
        on_message: Callable[[Message], None],
        *,
        environ: Mapping[str, str],
        inherited_fds: Sequence[int] = (),
        title: Title = _TITLE,
    ) -> None:
        """Start `entry`, a `module:function` that takes a `Channel`. `ps` and `top` show `title`.
        Raises OSError."""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._process, ours = start_service(
            entry, environ=environ, inherited_fds=inherited_fds, title=title
        )
        self._connection = Connection(ours, on_message, self._on_closed)
        self._killed = ""
        self._stop_watch = on_end(self._process, self._connection.end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        return self._process.poll() is not None

    def send(self, message: Message) -> None:
        self._connection.send(message)

    async def gone(self) -> str:
        """Wait for the process, for 5 s after the end of its connection; then kill it."""
        done = await reaped(self._process)
        code = self._process.returncode
        if self._killed and code == -signal.SIGKILL:
            return f"was killed by holdfast: {self._killed}"
        return done or (describe_code(code) if code else "")

    async def close(self) -> str:
        """End the connection, and wait 5 s for the process; then kill it."""
        self._connection.close()
        self._stop_watch()
        return await reaped(self._process)

    def kill(self, why: str = "") -> None:
        self._killed = self._killed or why
        self._process.kill()

    def _on_closed(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


class ThreadService:
    """A service in a thread of this process, for objects that cannot be pickled."""

    def __init__(
        self, serve: Callable[[Channel], None], on_message: Callable[[Message], None], *, name: str
    ) -> None:
        """`serve` must return when the connection ends."""
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._over = asyncio.Event()
        self._fault = ""
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours, on_message, self._on_closed)
        self._thread = threading.Thread(
            target=self._run, args=(serve, Channel(theirs.detach())), name=name, daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def is_gone(self) -> bool:
        return self._over.is_set()

    def send(self, message: Message) -> None:
        self._connection.send(message)

    async def gone(self) -> str:
        """Wait for the thread, for at most 5 s after the end of its connection."""
        if not await happens(self._over, EXIT_DEADLINE_S):
            return (
                "hangs, probably in a call to a disk or to storage. holdfast does not wait for it"
            )
        return self._fault

    async def close(self) -> str:
        """End the connection, and wait at most 5 s."""
        self._connection.close()
        await happens(self._over, EXIT_DEADLINE_S)
        return ""

    def kill(self, why: str = "") -> None:
        """Send no more messages; a thread cannot be killed."""
        self._connection.close()
        self._on_closed("")

    def _run(self, serve: Callable[[Channel], None], channel: Channel) -> None:
        try:
            serve(channel)
        except BaseException as error:  # `gone` reports it
            self._fault = f"failed with {type_name(error)}: {message_of(error)}"
            traceback.print_exc()
        finally:
            channel.close()
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._connection.end()
        self._over.set()

    def _on_closed(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


def start_service(
    entry: str, *, environ: Mapping[str, str], inherited_fds: Sequence[int], title: Title
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `entry`, a `module:function` that takes a `Channel`, in a process. Returns the process
    and this end of its connection. Raises OSError."""
    return start_child(
        "holdfast.runtime.service_process:main",
        [entry, *title],
        environ=environ,
        inherited_fds=inherited_fds,
        last=[SCRIPTS, *map(str, sys.argv)],
    )


# A run may take weeks: only deaths that follow each other soon show that another start is in vain.
RESTARTS, WITHIN_S = 3, 600.0


class RestartingService:
    """A service that is restarted after a failure. `ended` is done after its last end.

    Messages to a process that died are lost. `again` is called after a restart, to send the
    messages that still matter.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], BackgroundService],
        *,
        tasks: TaskScope,
        first: Sequence[Message],
        again: Callable[[], None],
        tell: Callable[[str], None],
        given_up: Callable[[str], None],
        restarts: int = RESTARTS,
        within_s: float = WITHIN_S,
    ) -> None:
        """`first`: the messages that are sent after each start. `tell` is called with a message
        for each restart, of which there are at most `restarts` within `within_s` seconds;
        `given_up` when there will be no other restart."""
        self._name = name
        self._start = start
        self._first = tuple(first)
        self._again = again
        self._tell = tell
        self._given_up = given_up
        self._restarts = Rate(restarts, within_s)
        self._closing = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._service = self._begin()
        self._watching = tasks.start(self._watch())

    @property
    def pid(self) -> int:
        return self._service.pid

    @property
    def cpu_time_s(self) -> float:
        """The CPU time that the current process has used so far."""
        process = process_of(self.pid)
        return 0.0 if process is None else process.cpu_s

    def processes(self) -> list[Watched]:
        """The current process, unless it has ended."""
        if self._service.is_gone:
            return []
        return [Watched(self._service.pid, f"the {self._name}", self.replace)]

    def send(self, message: Message) -> None:
        self._service.send(message)

    async def close(self, *, has_finished: bool = False) -> None:
        """End it, wait for a limited time, and do not restart it.

        If it `has_finished` its work, it is killed silently when it takes long to exit, as on
        a busy machine: nothing is lost.
        """
        self._closing = True
        try:
            left = await self._service.close()
            survives = left == still_there(self._service.pid)
            if left and (survives or not has_finished):
                self._tell(f"the {self._name} {left}")
        finally:
            self._watching.cancel()

    def kill(self, why: str = "") -> None:
        """Kill it, and do not restart it."""
        self._closing = True
        self._service.kill(why)

    def replace(self, why: str) -> None:
        """Kill the current process; it is restarted as after any death."""
        self._service.kill(why)

    def _begin(self) -> BackgroundService:
        service = self._start()
        for message in self._first:
            service.send(message)
        return service

    async def _watch(self) -> None:
        while True:
            await self._service.ended
            how = await self._service.gone()
            if self._closing or not how:
                self.ended.set_result(how)
                return
            if not self._restarts.allows(asyncio.get_running_loop().time()):
                self.ended.set_result(how)
                self._given_up(
                    f"the {self._name} {how}; it has failed too often and is not started again"
                )
                return
            self._tell(f"the {self._name} {how}; it is started again and nothing is lost")
            try:
                self._service = self._begin()
            except OSError as error:
                self.ended.set_result(str(error))
                self._given_up(f"the {self._name} {how} and cannot be started again: {error}")
                return
            self._again()
