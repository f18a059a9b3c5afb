"""The debug mode: the thread that called `fit()` runs the trials, one after the other, so that
`breakpoint()`, profilers and coverage work as in any script. Nothing is isolated then: if the
trial crashes, the script crashes. The experiment can then be restored.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.worker.host import TrialHost
from holdfast.experiment.worker.script import applied_here
from holdfast.runtime.connection import Connection
from holdfast.runtime.launcher import NOTHING_SAID, ExitCause, Grant, Listener, WorkerHandle
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message

_WAIT_S = 0.25
_HEARD_S = 5.0


class InlineLauncher:
    """A launcher that runs each worker in the thread that calls `work`. All else is called on the
    loop."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[InlineWorker, socket.socket]] = queue.SimpleQueue()

    async def open(self, entry: str, payload: bytes) -> str:
        return "debug mode: trials run one at a time in this process"

    def launch(
        self, name: str, listener: Listener, node: str = "", grant: Grant = NOTHING_SAID
    ) -> InlineWorker:
        ours, theirs = socket.socketpair()
        worker = InlineWorker(name, ours, listener)
        self._waiting.put((worker, theirs))
        return worker

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        """Does nothing: modules stay imported in this process."""

    def processes(self) -> list[Watched]:
        return []

    def kill(self) -> None:
        """A trial that runs in the calling thread cannot be killed."""

    async def close(self) -> str:
        """Does nothing: each trial has ended when `work` returns."""
        return ""

    def work(self, plan: RunPlan, interrupt: Callable[[], None]) -> None:
        """Run the next trial in this thread, or wait a moment for one. After a Ctrl-C,
        `interrupt` orders the end of the run."""
        try:
            worker, sock = self._waiting.get(timeout=_WAIT_S)
        except queue.Empty:
            return
        host = TrialHost()
        host.take(plan.job)
        channel = Channel(sock.detach())
        try:
            with applied_here(plan.environment):
                host.run(channel)
        except KeyboardInterrupt:
            # Send the order to stop first, so that the trial does not count as failed.
            interrupt()
            worker.told_to_stop.wait(_HEARD_S)
            raise
        finally:
            channel.close()
            worker.end()


class InlineWorker(WorkerHandle):
    """The handle of a trial that runs in the calling thread."""

    def __init__(self, name: str, sock: socket.socket, listener: Listener) -> None:
        super().__init__(name, listener)
        self.told_to_stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(sock, listener.on_message, self._on_closed)

    @property
    def pid(self) -> int:
        return os.getpid()

    def send(self, message: Message) -> None:
        self._connection.send(message)

    def kill(self, why: str) -> None:
        """Send the order to stop, because a thread cannot be killed."""
        self.told_to_stop.set()

    def signal(self, signum: int) -> None:
        """Does nothing: only the user can interrupt the thread. The next `report()` stops the
        trial."""
        self.told_to_stop.set()

    def end(self) -> None:
        """Called by the thread when the trial has ended."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._connection.end)

    def _on_closed(self, reason: str) -> None:
        self.gone(ExitCause(cause=reason or "ended"))
