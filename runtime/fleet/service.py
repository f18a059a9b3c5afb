"""The interface of what a node keeps for the controller: to the agent it is opaque."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.runtime.stopped import Watched
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Message


class NodeService(Protocol):
    """Called on the agent's loop. It answers through the function that it was made with."""

    def load(self, settings: bytes) -> None:
        """Called once, before the first order. `settings` come from the controller, unchanged."""

    def order(self, message: Message) -> None: ...

    def processes(self) -> Sequence[Watched]:
        """Its processes that are alive."""

    def kill(self) -> None:
        """Kill its processes, without waiting."""

    async def gone(self) -> None:
        """Wait for processes that were killed: one may still be in a call that writes a file."""

    async def close(self, deadline_s: float) -> None:
        """Finish what was ordered, for at most `deadline_s` seconds, and end."""


# Makes the service of an agent from: the tasks of the agent, its scratch folder, and the function
# that sends an answer to the controller.
MakeService = Callable[[TaskScope, str, Callable[[Message], None]], NodeService]
