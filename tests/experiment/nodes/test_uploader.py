"""An agent's uploader: a real process, with a folder as its storage."""

from __future__ import annotations

import asyncio
import pickle
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.experiment.folder.contents import uploader_settings
from holdfast.experiment.folder.layout import ON_NODE, Layout
from holdfast.experiment.nodes.uploader import NodeUploader, packed
from holdfast.runtime.tasks import RunTasks
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint.manifest import verify
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.uploader import Uploader

pytestmark = [pytest.mark.anyio, pytest.mark.process]

FOLDER = "trial/checkpoint_000000"


class Node:
    """The scratch folder of an agent, with its uploader."""

    def __init__(self, folder: Path, tasks: RunTasks) -> None:
        self.tree = folder / ON_NODE
        folder.mkdir(parents=True)
        self.answers: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.uploader = NodeUploader(tasks, str(folder), self.answers.put_nowait)

    @property
    def kept(self) -> list[Path]:
        """What stays when the agent has removed its folder."""
        return list(self.tree.parent.parent.parent.glob("holdfast-kept-*/*"))

    async def answer(self, name: str) -> list[Any]:
        async with asyncio.timeout(60):
            while (message := await self.answers.get())[0] != name:
                continue
        return message

    def stage(self) -> None:
        (self.tree / FOLDER).mkdir(parents=True)
        (self.tree / FOLDER / "model").write_bytes(b"weights")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with RunTasks() as tasks:
        (tmp_path / "owner").mkdir()
        made = Node(tmp_path / "nodes" / "scratch", tasks)
        yield made
        await made.uploader.close(10.0)


async def owned(root: Path, storage: Location) -> tuple[Uploader, UploaderSettings]:
    """An owner that has claimed the storage, and the settings for nodes."""
    settings = uploader_settings(
        Layout(root),
        storage,
        experiment_id="an experiment",
        log_names=("stdout", "stderr"),
        artifacts=True,
        timeout_s=60,
    )
    uploader = Uploader(settings, lambda message: None)
    return uploader, replace(settings, claimed=await uploader.open())


@pytest.fixture
async def storage(node: Node, tmp_path: Path) -> AsyncIterator[Path]:
    """A folder as storage, which the node's uploader has seen."""
    folder = tmp_path / "storage"
    owner, settings = await owned(tmp_path / "owner", Location.resolve(folder, None, {}))
    node.uploader.load(packed(pickle.dumps(settings), {}))
    await node.answer("seen")
    yield folder
    await owner.close()


async def test_an_uploader_that_is_killed_is_replaced_and_says_so(
    node: Node, storage: Path
) -> None:
    [process] = node.uploader.processes()
    psutil.Process(process.pid).send_signal(signal.SIGKILL)
    await node.answer("replaced")
    await node.answer("seen")
    node.stage()
    node.uploader.order(["commit", "t1", 0, FOLDER, 1, 0.5, False])
    await node.answer("committed")
    assert (storage / FOLDER / "model").read_bytes() == b"weights"


async def test_the_end_finishes_what_was_ordered(node: Node, tmp_path: Path) -> None:
    storage = Location.resolve(tmp_path / "storage", None, {})
    owner, settings = await owned(tmp_path / "owner", storage)
    node.uploader.load(packed(pickle.dumps(settings), {}))  # it has not begun when it is ordered
    node.stage()
    node.uploader.order(["commit", "t1", 0, FOLDER, 1, 0.5, False])
    await node.uploader.close(60.0)
    assert await node.answer("closed") == ["closed", []]
    assert (tmp_path / "storage" / FOLDER / ".holdfast.json").exists()
    assert node.uploader.processes() == []
    assert node.tree.exists()  # the agent removes it with its folder
    assert node.kept == []
    await owner.close()


async def test_a_tree_that_is_not_all_in_storage_is_kept_and_the_controller_knows_where(
    node: Node, storage: Path
) -> None:
    node.stage()
    (storage / "trial").write_text("no folder can be made here")
    node.uploader.order(["commit", "t1", 0, FOLDER, 1, 0.5, False])
    await node.answer("uncommitted")
    await node.uploader.close(60.0)
    assert len((await node.answer("closed"))[1]) == 1
    _, kept = await node.answer("kept")
    assert verify(Path(kept, FOLDER), deep=True).total_bytes == len(b"weights")
    assert node.kept == [Path(kept)]
    assert not node.tree.exists()


async def test_the_tree_of_an_uploader_that_does_not_end_in_time_is_kept(
    node: Node, storage: Path
) -> None:
    node.stage()
    [process] = node.uploader.processes()
    psutil.Process(process.pid).suspend()
    node.uploader.order(["commit", "t1", 0, FOLDER, 1, 0.5, False])
    await node.uploader.close(0.1)
    _, kept = await node.answer("kept")
    assert (Path(kept) / FOLDER / "model").read_bytes() == b"weights"
    assert not psutil.pid_exists(process.pid)


async def test_only_the_environment_of_storage_goes_to_a_node() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/home/me", "GOOGLE_CLOUD_PROJECT": "p"}
    assert b"HOME" not in packed(b"", environ)
    assert b"AWS_SECRET_ACCESS_KEY" in packed(b"", environ)
