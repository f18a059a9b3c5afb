"""The controller's handle of a worker on another node."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from holdfast.runtime.errors import WireError
from holdfast.runtime.exit_cause import ExitCause
from holdfast.runtime.launcher import Listener
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message


class Sender(Protocol):
    """The node, as its workers see it."""

    def send(self, message: Message) -> None: ...


class RemoteWorker:
    """A worker of a `Fleet`. Its `pid` is what its node's kernel says, unique on that node only:
    0 until the worker has sent a message."""

    def __init__(self, name: str, listener: Listener, node: Sender) -> None:
        self.name = name
        self.pid = 0
        self._listener = listener
        self._node = node
        self._broken = ""
        self._is_gone = False

    def take_pid(self, told: int) -> None:
        self.pid = self.pid or told

    def confirm(self, told: int) -> None:
        self.take_pid(told)  # in case the node's kernel does not name senders
        if told != self.pid:
            raise ValueError(f"its pid is {self.pid}, but it reported {told}")

    def send(self, message: Message) -> None:
        if not self._is_gone:
            self._node.send(["to", self.name, message])

    def kill(self, why: str) -> None:
        if not self._is_gone:
            self._node.send(["kill", self.name, why])

    def signal(self, signum: int) -> None:
        if not self._is_gone:
            self._node.send(["signal", self.name, int(signum)])

    def hear(self, message: Message) -> None:
        """Deliver a message of the worker; an invalid one is its last."""
        if self._broken or self._is_gone:
            return
        try:
            self._listener.on_message(message)
        except WireError as error:
            self._broken = f"its connection failed ({error})"
            self.kill(self._broken)

    def has_used(self, used: Used) -> None:
        if not self._is_gone:
            self._listener.on_used(used)

    def gone(self, ending: ExitCause) -> None:
        """Report the exit, once."""
        if self._is_gone:
            return
        self._is_gone = True
        if self._broken and self._broken not in ending.cause:
            # The worker ended before the order to kill it arrived.
            ending = replace(ending, cause=f"{ending.cause}: {self._broken}")
        self._listener.on_exit(ending)


class Nowhere:
    """In place of a node that there is not."""

    def send(self, message: Message) -> None:
        """Does nothing."""
