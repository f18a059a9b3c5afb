"""The controller's handle of a worker on this machine.

`holdfast.runtime.local_launcher` creates it and orders the fork; the process itself begins in
`holdfast.runtime.worker`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import replace
from typing import Protocol

from holdfast.runtime import process_control
from holdfast.runtime.connection import Connection
from holdfast.runtime.exit_cause import ExitCause
from holdfast.runtime.launcher import NOTHING_SAID, Grant, Listener
from holdfast.runtime.orphans import is_child
from holdfast.runtime.process_exits import EXIT_DEADLINE_S
from holdfast.runtime.usage.used import Used
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


class LocalWorker:
    """A worker of a `LocalLauncher`."""

    def __init__(
        self, name: str, listener: Listener, launcher: WorkerOwner, grant: Grant = NOTHING_SAID
    ) -> None:
        self.name = name
        self.grant = grant
        self.killed = self._broken = ""
        self.is_gone = False
        # Set when its exit is reported, or when no process is left that could report it.
        self.exit_known = asyncio.Event()
        self._told_pid = 0
        self.is_orphan = False
        self.forker: Forker | None = None
        self._listener = listener
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
        """Whether it has sent a message, or its exit was reported."""
        return bool(self.pid) or self.is_gone

    def take_pid(self, told: int) -> None:
        """Accept a pid that its parent or the worker itself reports, if the kernel has not named
        the sender of a message."""
        if not self.pid and self.forker is not None and is_child(told, self.forker.pid):
            self._told_pid = told

    def confirm(self, told: int) -> None:
        self.take_pid(told)
        if told != self.pid:
            raise ValueError(f"its pid is {self.pid}, but it reported {told}")

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

    def has_used(self, used: Used) -> None:
        if not self.is_gone:
            self._listener.on_used(used)

    def gone(self, ending: ExitCause) -> None:
        """Report the exit, after the messages that the worker sent before it ended: they may
        arrive later than the news of its exit."""
        self.is_gone = True
        self.exit_known.set()
        if self._broken and self._broken not in ending.cause:
            # The worker ended with its connection, before the order to kill it arrived.
            ending = replace(ending, cause=f"{ending.cause}: {self._broken}")
        if self._connection is not None:
            self._connection.drain()
            self._connection.close()
        self._listener.on_exit(ending)

    def _on_closed(self, reason: str) -> None:
        if reason:
            self._broken = f"its connection failed ({reason})"
            self.kill(self._broken)
        self._launcher.on_closed(self)
