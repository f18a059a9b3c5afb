"""An experiment's folder with a checkpoint, its storage in memory, and the controller's side."""

from __future__ import annotations

import asyncio
import json
import queue
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.layout import is_checkpoint
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.journal.journal import Journal, Position
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import Store
from holdfast.syncer.uploader.process import UploaderProcess
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.answers import commit_of
from tests.rig.storage.stores import MemoryStore, Place

FOLDER = "trial/checkpoint_000000"
MARKER = f"{FOLDER}/.holdfast.json"


class Desk:
    """The controller's side: sends orders, and waits for answers."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._answers: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.heard: list[list[Any]] = []

    def order(self, *message: Any) -> None:
        self._orders.put(list(message))

    def publish(self, end: Position) -> None:
        self.order("publish", end.segment, end.offset, 0)

    def hang_up(self) -> None:
        self._orders.put(None)

    def send(self, message: list[Any]) -> None:
        self.heard.append(message)
        self._answers.put_nowait(message)

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._orders.get()

    async def answer(self, *names: str) -> list[Any]:
        """The next answer with one of these names."""
        async with asyncio.timeout(60):
            while (message := await self._answers.get())[0] not in names:
                continue
        return message


def stage(root: Path, weights: bytes) -> None:
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / ".holdfast-staged").touch()
    (root / FOLDER / "model").write_bytes(weights)


class Kept:
    """An experiment's directory with one checkpoint, its storage and the uploader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.desk = Desk()
        self.memory = MemoryStore()
        self.journal = Journal(root / "journal")
        stage(root, b"weights")

    def settings(self, store: Store) -> UploaderSettings:
        return UploaderSettings(
            root=self.root,
            storage=cast(Location, Place(store)),
            experiment_id="an experiment",
            journal="journal",
            head="head.json",
            is_record=lambda key: False,
            is_checkpoint=is_checkpoint,
            private=("journal",),
        )

    def grow(self) -> Position:
        """Append a record; returns the position after it."""
        self.journal.append([b"a record"])
        return self.journal.position

    def named(self) -> list[str]:
        """The segments that the head in storage names."""
        return [part["name"] for part in json.loads(self.memory.objects["head.json"])["segments"]]

    def lose_local(self) -> bytes:
        """Remove the local checkpoint; returns its former manifest."""
        made = manifest.hash_directory(self.root / FOLDER).to_bytes()
        shutil.rmtree(self.root / FOLDER)
        return made

    def objects_of(self, folder: str) -> list[str]:
        return [key for key in self.memory.objects if key.startswith(f"{folder}/")]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.fixture
async def keeping(kept: Kept) -> AsyncIterator[Callable[[Store], Kept]]:
    """A function that starts the uploader with a store, until the test ends."""
    tasks = []

    def begin(store: Store) -> Kept:
        process = UploaderProcess(kept.desk, kept.settings(store))
        tasks.append(asyncio.get_running_loop().create_task(process.serve()))
        return kept

    yield begin
    kept.desk.hang_up()
    await asyncio.gather(*tasks)
    kept.journal.abandon()


async def open_and_commit(settings: UploaderSettings) -> None:
    uploader = Uploader(settings, lambda message: None)
    await uploader.open()
    await uploader.commit(commit_of("t1", 0, FOLDER))
