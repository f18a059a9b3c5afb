"""The uploaders of a run on several nodes in one process, each with a tree of its own."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from holdfast.experiment.folder.contents import uploader_settings
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.runtime.service import RestartingService
from holdfast.scheduler.events import Event
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.uploader.process import UploaderProcess
from holdfast.trial.config import SyncConfig
from tests.rig.storage.stores import FaultyStore, MemoryStore, Place


class OrderedUploader:
    """The controller's side of one uploader. Answers are kept, and passed to `on_answer`."""

    def __init__(self, on_answer: Callable[[list[Any]], None] = lambda message: None) -> None:
        self._orders: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._answers: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._on_answer = on_answer
        self.ordered: list[list[Any]] = []
        self.is_cut = False

    def order(self, *message: Any) -> None:
        self.ordered.append(list(message))
        if not self.is_cut:
            self._orders.put(list(message))

    def end(self) -> None:
        self._orders.put(None)

    def send(self, message: list[Any]) -> None:
        self._answers.put_nowait(message)
        if not self.is_cut:
            self._on_answer(message)

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._orders.get()

    async def answer(self, *names: str) -> list[Any]:
        async with asyncio.timeout(60):
            while (message := await self._answers.get())[0] not in names:
                continue
        return message

    async def answer_to(self, ticket: str) -> list[Any]:
        """The answer to an order with this ticket."""
        while (message := await self.answer("done", "unanswered"))[1] != ticket:
            continue
        return message


class NodeTrees:
    """A storage, and uploaders with a tree each in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = MemoryStore()
        self.store = FaultyStore(self.memory)
        self._uploaders: list[OrderedUploader] = []
        self._tasks: list[asyncio.Task[None]] = []

    def settings(self, tree: str, **changes: Any) -> UploaderSettings:
        """The settings of the owner, or with `node` and `claimed` those of a node."""
        root = self.folder / tree
        root.mkdir(exist_ok=True)
        made = uploader_settings(
            Layout(root),
            cast(Location, Place(self.store)),
            experiment_id="an experiment",
            log_names=("stdout", "stderr"),
            artifacts=True,
            timeout_s=60,
        )
        return replace(made, **changes)

    def serve(
        self,
        settings: UploaderSettings,
        on_answer: Callable[[list[Any]], None] = lambda message: None,
    ) -> OrderedUploader:
        """Start an uploader."""
        uploader = OrderedUploader(on_answer)
        process = UploaderProcess(uploader, settings)
        self._uploaders.append(uploader)
        self._tasks.append(asyncio.get_running_loop().create_task(process.serve()))
        return uploader

    def write(self, tree: str, name: str, text: str = "weights") -> Path:
        path = self.folder / tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, tree: str, name: str) -> str:
        return (self.folder / tree / name).read_text()

    async def end(self) -> None:
        for uploader in self._uploaders:
            uploader.end()
        await asyncio.gather(*self._tasks)


class _OwnersService:
    """The uploader as `Uploads` sees it."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.uploader: OrderedUploader | None = None

    def send(self, message: list[Any]) -> None:
        assert self.uploader is not None
        self.uploader.order(*message)

    async def close(self) -> None:
        """The rig ends it."""


class RunWithNodes:
    """The controller's uploads with the owner's uploader, and with one for each node. It is the
    host of the uploads, and the transport to the nodes."""

    def __init__(self, trees: NodeTrees, *, sync: SyncConfig, is_remote: bool) -> None:
        self.trees = trees
        self.events: list[Event] = []
        self.warned: list[str] = []
        self.lost: list[tuple[str, int, str]] = []
        self.nodes: dict[str, OrderedUploader] = {}
        self.claim: Claim | None = None
        self._shared: Location | None = None
        if not is_remote:
            (trees.folder / "owner").mkdir(exist_ok=True)
            self._shared = Location.resolve(trees.folder / "owner", None, {})
        service = _OwnersService()
        self.uploads = Uploads(
            cast(RestartingService, service),
            cast(JournalWriter, SimpleNamespace(position=Position(0, 100), when_durable=_at_once)),
            host=self,
            sync=sync,
            begins=0,
            is_remote=is_remote,
            transport=self,
            where="the storage",
        )
        changes = {"storage": None, "shared": self._shared} if self._shared else {}
        settings = trees.settings("owner", on_nodes=True, **changes)
        service.uploader = self.owner = trees.serve(settings, self._on_owner)

    def _on_owner(self, message: list[Any]) -> None:
        if message[0] == "opened":
            self.claim = Claim.parse(message[1])
        self.uploads.on_answer(message)

    async def join(self, node: str, **changes: Any) -> OrderedUploader:
        """A node with its uploader; returns once it is known whether it sees the storage."""
        await self.uploads.opened
        settings = self.trees.settings(node, node=node, claimed=self.claim)
        if self._shared is not None:
            settings = replace(settings, storage=self._shared)
        self.uploads.node_joined(node)
        self.nodes[node] = self.trees.serve(
            replace(settings, **changes), lambda message: self._on_answer(node, message)
        )
        await self.uploads.nodes.settled(node)
        return self.nodes[node]

    def _on_answer(self, node: str, message: list[Any]) -> None:
        self.uploads.on_answer(message, node)

    def lose_node(self, node: str) -> None:
        """From now on nothing reaches the node, and nothing comes from it."""
        self.nodes[node].is_cut = True
        self.uploads.node_left(node)

    def order(self, node: str, message: list[Any]) -> None:
        self.nodes[node].order(*message)

    def post(self, event: Event) -> None:
        self.events.append(event)

    def warn(self, text: str, level: str = "warning") -> None:
        self.warned.append(text)

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        self.lost.append((trial_id, index, reason))

    def lose_ownership(self, text: str) -> None:
        raise AssertionError(text)


def _at_once(act: Callable[[], None]) -> None:
    act()


@asynccontextmanager
async def run_with_nodes(
    folder: Path, *nodes: str, sync: SyncConfig | None = None, is_remote: bool = True
) -> AsyncIterator[RunWithNodes]:
    """A run with these nodes, in folders below `folder`; the controller's is `owner`."""
    trees = NodeTrees(folder)
    sync = sync or SyncConfig(sync_artifacts=True, restore_artifacts=True)
    run = RunWithNodes(trees, sync=sync, is_remote=is_remote)
    try:
        for node in nodes:
            await run.join(node)
        yield run
    finally:
        run.uploads.stop()
        await trees.end()
