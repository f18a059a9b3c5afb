"""A node's keeper next to the owner's, each with a tree of its own, and one storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.contents import uploader_settings
from holdfast.experiment.folder.layout import Layout
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.stores import owned_store, retry
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.uploader.process import UploaderProcess
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.answers import look_for, rows
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore, Place
from tests.syncer.uploader.kept import Desk

pytestmark = pytest.mark.anyio

FOLDER = "trial/checkpoint_000000"
MARKER = f"{FOLDER}/.holdfast.json"
PROGRESS = TrialProgress(trial_id="t1", iteration=1, time_total_s=0.5)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.001)


class Cluster:
    """A storage, the owner's tree, and those of nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = MemoryStore()
        self.store = FaultyStore(self.memory)
        self.claim: Claim | None = None
        self.desks: list[Desk] = []
        self.tasks: list[asyncio.Task[None]] = []

    def settings(self, tree: str, **changes: Any) -> UploaderSettings:
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

    async def owner(self) -> Uploader:
        """An owner, which has claimed the storage."""
        uploader = Uploader(self.settings("owner"), lambda message: None)
        self.claim = await uploader.open()
        return uploader

    def serve(self, settings: UploaderSettings) -> Desk:
        """Start a keeper."""
        desk = Desk()
        process = UploaderProcess(desk, settings)
        self.desks.append(desk)
        self.tasks.append(asyncio.get_running_loop().create_task(process.serve()))
        return desk

    async def node(self, name: str = "a") -> Desk:
        """The keeper of a node that sees the storage."""
        if self.claim is None:
            await self.owner()
        desk = self.serve(self.settings(name, node=name, claimed=self.claim))
        assert (await desk.answer("seen", "blind"))[0] == "seen"
        return desk

    def write(self, tree: str, name: str, text: str = "weights") -> Path:
        path = self.folder / tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for desk in made.desks:
        desk.hang_up()
    await asyncio.gather(*made.tasks)


async def test_a_node_uses_the_claim_of_the_owner_and_shows_that_it_sees_the_storage(
    cluster: Cluster,
) -> None:
    owner = await cluster.owner()
    desk = cluster.serve(cluster.settings("a", node="a", claimed=cluster.claim))
    _, key, content = await desk.answer("seen")
    assert sorted(cluster.memory.objects) == [".epochs/000001", key]
    assert await owner.take_token(key, "another content") != ""
    assert await owner.take_token(key, content) == ""
    assert sorted(cluster.memory.objects) == [".epochs/000001"]
    assert await owner.take_token(".epochs/000001", "an experiment") != ""


async def test_a_token_that_nobody_took_goes_with_the_next_claim(cluster: Cluster) -> None:
    await cluster.node()
    assert len(cluster.memory.objects) == 2
    await cluster.owner()
    assert sorted(cluster.memory.objects) == [".epochs/000001", ".epochs/000002"]


async def test_a_node_commits_what_was_staged_there(cluster: Cluster) -> None:
    desk = await cluster.node()
    cluster.write("a", f"{FOLDER}/model")
    desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    assert await desk.answer("committed") == ["committed", "t1", 0]
    assert cluster.memory.objects[f"{FOLDER}/model"] == b"weights"
    assert MARKER in cluster.memory.objects
    assert not any(operation == "delete" for operation, _ in cluster.store.log)


async def test_a_node_of_an_earlier_run_writes_nothing_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_store, "_LOOK_S", 0.0)
    desk = await cluster.node()
    await cluster.owner()
    cluster.write("a", f"{FOLDER}/model")
    desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    assert "a newer restore" in (await desk.answer("refused"))[1]
    assert MARKER not in cluster.memory.objects
    late = cluster.serve(cluster.settings("b", node="b", claimed=Claim(1)))
    assert "a newer restore" in (await late.answer("blind"))[1]


async def test_a_node_that_lacks_the_folder_does_not_create_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    there = Location.resolve(tmp_path / "on-the-controller-only", None, {})
    desk = cluster.serve(cluster.settings("a", node="a", storage=there, claimed=Claim(1)))
    assert "no such folder on this node" in (await desk.answer("blind"))[1]
    assert not (tmp_path / "on-the-controller-only").exists()


async def test_a_node_whose_storage_lacks_the_claim_is_blind(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the same name on the node's own disk."""
    monkeypatch.setattr("holdfast.syncer.uploader.uploader._SEEN_WITHIN_S", 0.05)
    own = tmp_path / "own"
    own.mkdir()
    there = Location.resolve(own, None, {})
    desk = cluster.serve(cluster.settings("a", node="a", storage=there, claimed=Claim(1)))
    assert "this run's claim" in (await desk.answer("blind"))[1]
    assert list(own.iterdir()) == []


async def test_the_controllers_folder_as_storage_is_claimed_for_the_nodes(
    cluster: Cluster,
) -> None:
    root = cluster.folder / "owner"
    shared = Location.resolve(root, None, {})
    settings = cluster.settings("owner", storage=None, shared=shared)
    told: list[list[Any]] = []
    owner = Uploader(settings, rows(told))
    claim = await owner.open()
    assert claim == Claim(1)
    desk = cluster.serve(cluster.settings("a", node="a", storage=shared, claimed=claim))
    _, *token = await desk.answer("seen")
    assert await owner.take_token(*token) == ""
    cluster.write("a", f"{FOLDER}/model")
    desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    assert await desk.answer("committed") == ["committed", "t1", 0]
    assert (root / FOLDER / "model").read_text() == "weights"
    await owner.look_for(look_for("t1", 0, FOLDER))
    assert told == [["committed", "t1", 0]]
    await owner.close()


@pytest.mark.parametrize("is_remote", [False, True])
async def test_of_a_lost_node_only_what_is_whole_in_storage_counts(
    cluster: Cluster, is_remote: bool
) -> None:
    """Not a part of it, nor files of the same name in the controller's tree."""
    told: list[list[Any]] = []
    shared = None if is_remote else Location.resolve(cluster.folder / "owner", None, {})
    settings = cluster.settings("owner", shared=shared)
    owner = Uploader(settings if is_remote else replace(settings, storage=None), rows(told))
    await owner.open()
    cluster.write("owner", f"{FOLDER}/model", "of another attempt")
    await owner.look_for(look_for("t1", 0, FOLDER))
    assert told[-1][:3] == ["lost", "t1", 0]
    assert not (cluster.folder / "owner" / MARKER).exists()
    cluster.write("owner", "trial/notes", "")
    assert await owner.send_artifacts(None) == is_remote, "the tree needs no copy of itself"
    await owner.close()


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        ({}, True),
        ({"time_total_s": 0.25}, False),
        ({"iteration": 2}, False),
        ({"trial_id": "t2"}, False),
    ],
)
async def test_a_checkpoint_copied_from_a_node_counts_if_it_is_the_one_that_was_reported(
    cluster: Cluster, change: dict[str, Any], is_used: bool
) -> None:
    told: list[list[Any]] = []
    owner = Uploader(cluster.settings("owner"), rows(told))
    await owner.open()
    model = cluster.write("owner", f"{FOLDER}/model")
    manifest.write(model.parent, progress=replace(PROGRESS, **change))
    await owner.look_for(look_for("t1", 0, FOLDER))
    assert told[-1][:3] == ["committed" if is_used else "lost", "t1", 0]
    assert (cluster.memory.objects.get(f"{FOLDER}/model") == b"weights") is is_used
    assert (MARKER in cluster.memory.objects) is is_used
    await owner.close()


async def test_at_the_end_a_node_seals_the_checkpoints_whose_turn_had_not_come(
    cluster: Cluster,
) -> None:
    desk = await cluster.node()
    second = "trial/checkpoint_000001"
    for folder in (FOLDER, second):
        cluster.write("a", f"{folder}/model")
    at = cluster.store.operations + 1
    cluster.store.disturb(at=at, fault=Fault.STALL, lasting=True)
    for index, folder in enumerate((FOLDER, second)):
        desk.order("commit", "t1", index, folder, index + 1, 0.5, False)
    await cluster.store.stalled.wait()
    desk.order("close", 0.0, False)
    assert len((await desk.answer("closed"))[1]) == 2
    await cluster.tasks[-1]
    for folder, iteration in ((FOLDER, 1), (second, 2)):
        made = manifest.verify(cluster.folder / "a" / folder, deep=True)
        assert made.progress == replace(PROGRESS, iteration=iteration)
    assert not cluster.memory.objects.keys() & {f"{FOLDER}/model", MARKER}


async def test_a_superseded_checkpoint_is_removed_on_the_node_only(cluster: Cluster) -> None:
    desk = await cluster.node()
    cluster.write("a", f"{FOLDER}/model")
    desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    desk.order("discard", "t1", [FOLDER])
    assert await desk.answer("discarded") == ["discarded", "t1", [FOLDER]]
    assert not (cluster.folder / "a" / FOLDER).exists()
    assert MARKER in cluster.memory.objects  # the owner removes it after the next head


async def test_another_node_fetches_a_checkpoint_and_then_has_it(cluster: Cluster) -> None:
    first, second = await cluster.node("a"), await cluster.node("b")
    cluster.write("a", f"{FOLDER}/model")
    first.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    await first.answer("committed")
    second.order("check", "x", FOLDER, True)
    assert "no manifest" in (await second.answer("done"))[2]
    second.order("fetch", "y", FOLDER)
    assert await second.answer("done") == ["done", "y", ""]
    second.order("check", "z", FOLDER, True)
    assert await second.answer("done") == ["done", "z", ""]
    assert (cluster.folder / "b" / FOLDER / "model").read_text() == "weights"
    manifest.verify(cluster.folder / "b" / FOLDER, deep=True)


async def test_a_clone_gets_a_copy_on_its_node(cluster: Cluster) -> None:
    desk = await cluster.node()
    cluster.write("a", f"{FOLDER}/model")
    cluster.write("a", "clone/checkpoint_000003/left", "by an attempt that did not report it")
    cluster.write("a", "clone/checkpoint_000003/.holdfast-staged", "")
    desk.order("copy", "x", FOLDER, "clone/checkpoint_000003")
    assert await desk.answer("copied") == ["copied", "x", 1, len("weights")]
    copy = cluster.folder / "a" / "clone" / "checkpoint_000003"
    assert sorted(path.name for path in copy.iterdir()) == [".holdfast-staged", "model"]
    desk.order("copy", "y", "trial/checkpoint_000009", "clone/checkpoint_000004")
    assert (await desk.answer("unanswered"))[1] == "y"


async def test_a_node_sends_the_output_of_its_trials_and_no_records(cluster: Cluster) -> None:
    desk = await cluster.node()
    for name in ("stdout", "stderr.rank-1", "plot.png", "result.json", "params.json"):
        cluster.write("a", f"trial/{name}", name)
    cluster.write("a", "other/stdout", "of another trial")
    cluster.write("a", f"{FOLDER}/model")
    desk.order("send_files", ["trial"], False)
    desk.order("close", 60.0, False)
    assert await desk.answer("closed") == ["closed", []]
    found = [key for key in cluster.memory.objects if not key.startswith(".epochs")]
    assert sorted(found) == ["trial/stderr.rank-1", "trial/stdout"]


async def test_artifacts_follow_the_trial_to_another_node(cluster: Cluster) -> None:
    first, second = await cluster.node("a"), await cluster.node("b")
    cluster.write("a", "trial/stdout", "the first attempt\n")
    cluster.write("a", "trial/plots/loss.png", "a plot")
    first.order("send_files", ["trial"], True)
    first.order("close", 60.0, False)
    await first.answer("closed")
    cluster.memory.objects["trial/result.json"] = b"from the controller"
    second.order("download", "x", "trial", True)
    assert await second.answer("done") == ["done", "x", ""]
    tree = cluster.folder / "b" / "trial"
    assert (tree / "stdout").read_text() == "the first attempt\n"
    assert (tree / "plots" / "loss.png").read_text() == "a plot"
    assert not (tree / "result.json").exists()
    (tree / "plots" / "loss.png").unlink()
    cluster.write("b", "trial/stdout", "the first attempt\nthe second\n")
    second.order("send_files", ["trial"], True)
    second.order("close", 60.0, False)
    await second.answer("closed")
    assert cluster.memory.objects["trial/stdout"] == b"the first attempt\nthe second\n"
    assert "trial/plots/loss.png" not in cluster.memory.objects
    assert cluster.memory.objects["trial/result.json"] == b"from the controller"


async def test_the_owners_mirror_leaves_what_nodes_have_put(
    cluster: Cluster,
) -> None:
    owner = await cluster.owner()
    desk = await cluster.node()
    cluster.write("a", "trial/stdout", "output")
    cluster.write("a", "trial/plot.png", "a plot")
    desk.order("send_files", ["trial"], True)
    desk.order("close", 60.0, False)
    await desk.answer("closed")
    before = dict(cluster.memory.objects)
    cluster.write("owner", "trial/result.json", "{}")
    await owner.send_artifacts(None)
    assert cluster.memory.objects == before


async def test_what_a_node_wrote_later_replaces_the_older_files_of_this_machine(
    cluster: Cluster,
) -> None:
    """A run on this machine, then one on nodes, then one on this machine again."""
    cluster.write("owner", "trial/stdout", "one\n")
    cluster.write("owner", "trial/result.json", "{}")
    on_nodes = cluster.settings("owner", on_nodes=True)
    first = Uploader(on_nodes, lambda message: None)
    await first.open()
    await first.hand_over("trial")
    assert cluster.memory.objects["trial/stdout"] == b"one\n"
    cluster.memory.objects["trial/stdout"] = b"one\ntwo\n"  # by the node
    # Another run on nodes does not send the older file again.
    second = Uploader(on_nodes, lambda message: None)
    await second.open()
    await second.send_artifacts(None)
    await second.hand_over("trial")
    assert cluster.memory.objects["trial/stdout"] == b"one\ntwo\n"
    third = Uploader(cluster.settings("owner"), lambda message: None)
    await third.open()
    await third.download_artifacts("trial")
    assert (cluster.folder / "owner" / "trial" / "stdout").read_text() == "one\ntwo\n"
    assert (cluster.folder / "owner" / "trial" / "result.json").read_text() == "{}"
