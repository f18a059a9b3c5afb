"""Runs in the agent: the uploader of its node, which brings checkpoints to storage from here.

The controller writes the settings, and its orders pass through unchanged
(`holdfast.experiment.uploads`). It is a process of its own, as the controller's is: so
neither checksums nor TLS delay a beat of the agent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.experiment.folder.layout import ON_NODE
from holdfast.experiment.nodes.packing import of_storage
from holdfast.runtime.fleet.scratch import keep
from holdfast.runtime.process_control import Title
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import RestartingService, Service
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Decoder, Message, encode
from holdfast.schema import to_row
from holdfast.syncer.uploader.messages import Answer, Close, Kept, Notice, Open, Sign

# What a service of the run, or of a node, performs to upload.
UPLOADER = "holdfast.syncer.uploader.process:main"
# How long a killed process may take to end; one in a call to a disk that hangs takes longer.
_KILLED_S = 1.0


def packed(settings: bytes, environ: Mapping[str, str]) -> bytes:
    """What an agent loads: the pickled settings of an uploader, and the environment of storage."""
    return encode(["uploader", settings, of_storage(environ)])


class NodeUploader:
    """The `NodeService` of an agent."""

    def __init__(self, tasks: TaskScope, folder: str, answer: Callable[[Message], None]) -> None:
        """`folder` is the agent's scratch folder. `answer` sends the controller a message."""
        self._tasks = tasks
        self._folder = folder
        self._root = Path(folder) / ON_NODE
        self._answer = answer
        # The uploader has ended with everything in storage.
        self._is_all_stored = False
        self._service: RestartingService | None = None

    def load(self, settings: bytes) -> None:
        """Start the uploader. Raises OSError, WireError."""
        [[_, pickled, environ]] = Decoder().feed(settings)
        self._root.mkdir(mode=0o700, exist_ok=True)
        opening = to_row(Open(settings=pickled, root=str(self._root), node=socket.gethostname()))
        self._service = RestartingService(
            "uploader (it brings checkpoints to storage)",
            lambda: Service(
                UPLOADER,
                self._pass_on,
                environ={**os.environ, **environ},
                title=Title("uploader", short="upload"),
            ),
            tasks=self._tasks,
            first=[opening],
            again=lambda: self._say(Sign(name="replaced")),
            tell=lambda text: self._say(Notice(name="warning", text=text)),
            given_up=lambda text: self._say(Notice(name="gone", text=text)),
        )

    def _say(self, answer: Answer) -> None:
        self._answer(to_row(answer))

    def _pass_on(self, message: Message) -> None:
        if message[0] == "closed":
            self._is_all_stored = message == ["closed", []]
        self._answer(message)

    def order(self, message: Message) -> None:
        if self._service is not None:
            self._service.send(message)

    def processes(self) -> Sequence[Watched]:
        """Its process, if it is alive."""
        return [] if self._service is None else self._service.processes()

    def kill(self) -> None:
        """Kill its process, without waiting."""
        if self._service is not None:
            self._service.kill()

    async def gone(self) -> None:
        """Wait until its process, which was killed, has ended."""
        if self._service is not None:
            await asyncio.wait([self._service.ended])

    async def close(self, deadline_s: float) -> None:
        """Finish what was ordered, for at most `deadline_s` seconds, and end. If something is not
        in storage then, keep the tree on this node, and tell the controller where."""
        if self._service is None:
            return
        if not self._service.ended.done():
            self._service.send(to_row(Close(deadline_s=deadline_s, is_patient=False)))
            await asyncio.wait([self._service.ended], timeout=deadline_s)
            if not self._service.ended.done():
                # The controller waits only a little longer.
                self._service.kill()
                await asyncio.wait([self._service.ended], timeout=_KILLED_S)
        await self._service.close()
        if not self._is_all_stored and any(one.is_dir() for one in self._root.glob("[!.]*")):
            self._keep()

    def _keep(self) -> None:
        try:
            self._say(Kept(place=keep(self._folder, ON_NODE)))
        except OSError as error:
            text = f"what is not in storage cannot be kept: {error}"
            self._say(Notice(name="warning", text=text))
