"""The controller's handles of a warm parent and of its workers.

`holdfast.runtime.local_launcher` creates a `LocalWorker` and orders the fork; the process itself
begins in `holdfast.runtime.worker`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.runtime import process_control
from holdfast.runtime.connection import Connection
from holdfast.runtime.interpreter import start_child
from holdfast.runtime.launcher import NOTHING_SAID, Grant, Listener, WorkerHandle, describe_code
from holdfast.runtime.orphans import is_child
from holdfast.runtime.process_control import words
from holdfast.runtime.process_exits import EXIT_DEADLINE_S, abandon, on_end
from holdfast.runtime.tasks import happens
from holdfast.runtime.warm.succession import Forker
from holdfast.runtime.wire import LARGEST_FROM_WORKER, Message


class WorkerOwner(Protocol):
    """The launcher, as its workers see it."""

    def fork_now(self, worker: LocalWorker) -> None:
        """Order the worker's fork, if it was postponed."""

    def await_exit(self, worker: LocalWorker, forker: Forker) -> None:
        """Wait for a worker that was killed, and give up if its exit is never reported."""

    def on_closed(self, worker: LocalWorker) -> None:
        """Called when the connection to the worker has ended."""


class LocalWorker(WorkerHandle):
    """A worker of a `LocalLauncher`."""

    def __init__(
        self, name: str, listener: Listener, launcher: WorkerOwner, grant: Grant = NOTHING_SAID
    ) -> None:
        super().__init__(name, listener)
        self.grant = grant
        self.killed = ""
        # Set when its exit is reported, or when no process is left that could report it.
        self.exit_known = asyncio.Event()
        self.is_orphan = False
        self.forker: Forker | None = None
        self._launcher = launcher
        self._connection: Connection | None = None

    def connect(self, sock: socket.socket) -> None:
        self._connection = Connection(
            sock, self._listener.on_message, self._on_closed, largest=LARGEST_FROM_WORKER
        )

    @property
    def pid(self) -> int:
        known = 0 if self._connection is None else self._connection.peer_pid
        return known or self._told_pid

    @property
    def has_started(self) -> bool:
        """True if it has sent a message, or its exit was reported."""
        return bool(self.pid) or self.is_gone

    def take_pid(self, told: int) -> None:
        if not self.pid and self.forker is not None and is_child(told, self.forker.pid):
            self._told_pid = told

    def send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def kill(self, why: str) -> None:
        is_first, self.killed = not self.killed, self.killed or why
        self.signal(signal.SIGKILL)
        if is_first and self.forker is not None:
            self._launcher.await_exit(self, self.forker)

    def signal(self, signum: int) -> None:
        self._launcher.fork_now(self)  # a worker that is not forked yet cannot get a signal
        if self.forker is not None:
            self.forker.send(["signal", self.name, signum])

    def orphaned(self) -> None:
        """The process that would report the exit has died: the end of the connection counts."""
        self.is_orphan = True
        self.exit_known.set()
        if self.pid:
            process_control.kill_group(self.pid)
        # A child that has left the worker's process group may keep the connection open. After
        # `EXIT_DEADLINE_S` the worker counts as gone anyway.
        alive = self._connection is not None and self._connection.is_open
        loop = asyncio.get_running_loop()
        loop.call_later(EXIT_DEADLINE_S if alive else 0, self._launcher.on_closed, self)

    def _read_rest(self) -> None:
        """They may arrive later than the news of its exit."""
        self.exit_known.set()
        if self._connection is not None:
            self._connection.drain()
            self._connection.close()

    def _on_closed(self, reason: str) -> None:
        if reason:
            self.on_broken(reason)
        self._launcher.on_closed(self)


class WarmClient:
    """A warm parent's process (`holdfast.runtime.warm.parent` lists its messages).

    `loaded` is a future of its answer to "load": ["ready", ...], ["refused", ...] or, if it died
    before answering, ["lost", how].
    """

    def __init__(
        self,
        load: Message,
        on_message: Callable[[Message], None],
        on_lost: Callable[[WarmClient], None],
        *,
        environ: Mapping[str, str],
        inherited_fds: Sequence[int],
        directory: str | None = None,
        held: Sequence[str] = (),
        left: Sequence[str] = (),
    ) -> None:
        """`on_lost` is called once, when the process is dead. If this process dies, it removes the
        sockets `left`. Raises OSError."""
        self._on_message = on_message
        self._on_lost = on_lost
        self._reason = ""
        # How the process ended; "" before that.
        self.cause = ""
        self._gone = asyncio.Event()
        self.is_loading = True
        self.loaded: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._process, ours = start_child(
            "holdfast.runtime.warm.parent:main",
            [words(held), words(left)],
            environ=environ,
            inherited_fds=inherited_fds,
            directory=directory,
        )
        self._connection = Connection(ours, self._listen, self._on_closed)
        self._stop_watch = on_end(self._process, self._on_death)
        self._connection.send(load)

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        self._connection.send(message, fds)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self, why: str = "") -> None:
        """Kill the process, and the processes that the user's modules started at their import."""
        self._reason = self._reason or (why and f"was killed by holdfast: {why}")
        if not self._gone.is_set():
            process_control.kill_group(self._process.pid)

    async def close(self) -> str:
        """Order the process to end, and wait. Returns a warning if it survives SIGKILL, or ""."""
        self._connection.send(["end"])
        self._connection.close()
        if await happens(self._gone, EXIT_DEADLINE_S):
            return ""
        self.kill()
        if await happens(self._gone, EXIT_DEADLINE_S):
            return ""
        self._stop_watch()
        return f"the warm parent {abandon(self._process)}"

    def _listen(self, message: Message) -> None:
        if message[0] in ("ready", "refused"):
            self._tell_loaded(message)
        else:
            self._on_message(message)

    def _tell_loaded(self, answer: Message) -> None:
        self.is_loading = False
        if not self.loaded.done():
            self.loaded.set_result(answer)

    def _on_closed(self, reason: str) -> None:
        """Kill the process, which cannot be used without a connection. `_on_death` reports it."""
        self._reason = self._reason or reason
        self.kill()

    def _on_death(self) -> None:
        self._connection.drain()
        self._connection.close()
        self.kill()
        if self._process.poll() is None:  # a debugger keeps it from being reaped
            abandon(self._process)
        self._gone.set()
        self.cause = self._reason or describe_code(self._process.returncode)
        self._tell_loaded(["lost", self.cause])
        self._on_lost(self)
