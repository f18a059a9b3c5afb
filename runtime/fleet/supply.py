"""What every node gets before it starts workers: files, and then the order to load."""

from __future__ import annotations

import asyncio

from holdfast.runtime.deadlines import happens
from holdfast.runtime.fleet.delivery import InThread, deliver
from holdfast.runtime.fleet.node import Node
from holdfast.runtime.fleet.settings import Shared
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Message

_LOOK_S = 60.0


class Supply:
    """Nodes that join before everything is `complete` wait for it."""

    def __init__(self, shared: Shared, in_thread: InThread) -> None:
        """`in_thread` reads the files."""
        self.shared = shared
        self._in_thread = in_thread
        self._entry, self._payload = "", b""
        self._complete = asyncio.Event()

    def code(self, entry: str, payload: bytes) -> None:
        """What workers run."""
        self._entry, self._payload = entry, payload

    def complete(self) -> None:
        """From now on nothing changes."""
        self._complete.set()

    def give(self, node: Node, tasks: TaskScope) -> None:
        """Send it to the node, now or later."""
        if self._complete.is_set() and not self.shared.files:
            node.send(self._order())
        else:
            tasks.start(self._give(node))

    async def _give(self, node: Node) -> None:
        # Whoever completes it has the deadlines.
        while not await happens(self._complete, _LOOK_S):
            if not node.link.is_open:
                return
        try:
            await deliver(self.shared.files, node.link, self._in_thread)
        except OSError as error:
            node.link.fail(f"the files for it cannot be read here: {error}")
        else:
            node.send(self._order())

    def _order(self) -> Message:
        shared = self.shared
        return [
            "load",
            {
                "entry": self._entry,
                "payload": self._payload,
                "env_vars": dict(shared.env_vars),
                "import_folders": list(shared.import_folders),
                "directory": shared.directory,
                "learns": shared.learns,
                "workers_move": shared.workers_move,
                "stopped_deadline_s": shared.stopped_deadline_s,
                "service": shared.service,
                "ray_names": shared.ray_names,
            },
        ]
