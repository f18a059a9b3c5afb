"""The uploader with orders as the controller sends them, with stores in memory."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import queue
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.layout import is_checkpoint
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.checkpoint.upload import Upload
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.journal.journal import Journal, Position, segment_name
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.claim import Claim
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import ClaimLost
from holdfast.syncer.stores.store import ObjectInfo, Store
from holdfast.syncer.uploader import keeper as keeper_room
from holdfast.syncer.uploader import process
from holdfast.syncer.uploader.process import UploaderProcess
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.stores import Fault, FaultyStore, MemoryStore, Place

pytestmark = pytest.mark.anyio

FOLDER = "trial/checkpoint_000000"
MARKER = f"{FOLDER}/.holdfast.json"


class Forbidding(MemoryStore):
    """A bucket whose policy allows no deletions."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory.objects)

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            raise StorageRefused("delete", key, "AccessDenied")


class StallingDeletions(MemoryStore):
    """A server that answers everything else."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory.objects)
        self.stalled = asyncio.Event()

    async def delete(self, keys: Iterable[str]) -> None:
        self.stalled.set()
        await asyncio.Event().wait()


class StallingReads(MemoryStore):
    """A server that accepts everything, and returns nothing of checkpoints."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory.objects)

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        if prefix.startswith("trial"):
            await asyncio.Event().wait()
        return await super().list(prefix, leftovers=leftovers)


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

    async def answer(self, name: str) -> list[Any]:
        async with asyncio.timeout(30):
            while (message := await self._answers.get())[0] != name:
                continue
        return message


def told_of(end: Position) -> list[Any]:
    """The message when everything before `end` is visible."""
    return ["published", end.segment, end.offset]


def stage(root: Path, weights: bytes) -> None:
    (root / FOLDER).mkdir(parents=True)
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
        return self.journal.append([b"a record"])

    def named(self) -> list[str]:
        """The segments that the head in storage names."""
        return [part["name"] for part in json.loads(self.memory.objects["head.json"])["segments"]]

    def lose_local(self) -> bytes:
        """Remove the local checkpoint; returns its former manifest."""
        made = manifest.hash_directory(self.root / FOLDER).to_bytes()
        (self.root / FOLDER / "model").unlink()
        (self.root / FOLDER).rmdir()
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


async def test_a_committed_checkpoint_is_in_storage_and_its_manifest_came_last(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory)
    keeping(store)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    assert await kept.desk.answer("committed") == ["committed", "t1", 0]
    put = [key for operation, key in store.log if operation == "put" and key.startswith(FOLDER)]
    assert put == [f"{FOLDER}/model", f"{FOLDER}/.holdfast.json"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda objects: None, ""),
        (lambda objects: objects.pop(MARKER), "never committed"),
        (lambda objects: objects.update({MARKER: b"{}"}), "the manifest is damaged"),
        (lambda objects: objects.pop(f"{FOLDER}/model"), "model is missing"),
    ],
)
async def test_a_checkpoint_that_is_gone_here_is_committed_if_it_is_whole_in_storage(
    kept: Kept,
    keeping: Callable[[Store], Kept],
    damage: Callable[[dict[str, bytes]], Any],
    reason: str,
) -> None:
    keeping(kept.memory)
    kept.memory.objects |= {f"{FOLDER}/model": b"weights", MARKER: kept.lose_local()}
    damage(kept.memory.objects)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    answer = await kept.desk.answer("lost" if reason else "committed")
    assert answer[1:3] == ["t1", 0]
    assert reason in answer[-1] if reason else len(answer) == 3


@pytest.mark.parametrize(
    "held_before",
    [
        ("list", FOLDER),  # then finds what the newer incarnation has put there
        ("put", MARKER),  # then finds the marker there
    ],
)
async def test_an_incarnation_that_was_held_up_leaves_the_checkpoint_of_a_newer_one(
    kept: Kept, tmp_path: Path, held_before: tuple[str, str]
) -> None:
    smooth = FaultyStore(MemoryStore())
    await open_and_commit(kept.settings(smooth))
    at = smooth.log.index(held_before) + 1
    held = FaultyStore(kept.memory, at=at, fault=Fault.STALL)
    old = Uploader(kept.settings(held), lambda message: None)
    await old.open()
    uploading = asyncio.create_task(old.commit("t1", 0, FOLDER))
    await held.stalled.wait()

    stage(tmp_path / "elsewhere", b"newer weights")
    await open_and_commit(replace(kept.settings(kept.memory), root=tmp_path / "elsewhere"))
    committed = dict(kept.memory.objects)
    assert committed[f"{FOLDER}/model"] == b"newer weights"
    held.release()
    with pytest.raises(ClaimLost):
        await uploading
    assert kept.memory.objects == committed


async def open_and_commit(settings: UploaderSettings) -> None:
    uploader = Uploader(settings, lambda message: None)
    await uploader.open()
    await uploader.commit("t1", 0, FOLDER)


async def test_a_commit_whose_answer_was_lost_is_found_done(kept: Kept) -> None:
    smooth = FaultyStore(MemoryStore())
    await open_and_commit(kept.settings(smooth))
    last = smooth.log.index(("put", MARKER)) + 1
    lossy = FaultyStore(kept.memory, at=last, fault=Fault.LOSE_ANSWER)
    await open_and_commit(kept.settings(lossy))
    assert lossy.log.count(("put", MARKER)) == 1


@pytest.mark.parametrize("is_here", [True, False])
async def test_nothing_is_written_to_a_storage_that_vanished_and_nothing_taken_for_lost(
    kept: Kept, is_here: bool
) -> None:
    told: list[list[Any]] = []
    unmounted: dict[str, bytes] = {}

    def tell(message: list[Any]) -> None:
        told.append(message)
        if message[0] == "trouble":
            assert kept.memory.objects == {}
            kept.memory.objects |= unmounted

    uploader = Uploader(kept.settings(kept.memory), tell)
    await uploader.open()
    if not is_here:
        kept.memory.objects |= {f"{FOLDER}/model": b"weights", MARKER: kept.lose_local()}
    unmounted |= kept.memory.objects
    kept.memory.objects.clear()
    await uploader.commit("t1", 0, FOLDER)
    assert [message[0] for message in told] == ["trouble", "committed"]
    assert "Is it still mounted?" in told[0][1]
    assert len(kept.objects_of(FOLDER)) == 2


async def test_a_checkpoint_that_is_committed_after_all_is_not_missing_at_the_end(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory, error=StorageRefused("put", "faulty", "injected refusal"))
    keeping(store)
    await kept.desk.answer("opened")
    store.disturb(at=store.operations + 1, fault=Fault.FAIL)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("uncommitted")
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("committed")
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("closed") == ["closed", []]


async def test_a_checkpoint_that_was_never_committed_is_missing_at_the_end_unless_superseded(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory, error=StorageRefused("put", "faulty", "injected refusal"))
    keeping(store)
    stage(kept.root / "other", b"weights")
    await kept.desk.answer("opened")
    store.disturb(at=store.operations + 1, fault=Fault.FAIL, lasting=True)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    kept.desk.order("discard", "t1", [FOLDER])
    kept.desk.order("commit", "t2", 0, f"other/{FOLDER}", 1, 0.5)
    kept.desk.order("close", 30.0, False)
    _, missing = await kept.desk.answer("closed")
    assert [text.partition(":")[0] for text in missing] == [f"other/{FOLDER}"]


async def test_a_removal_that_failed_is_reported_but_is_not_missing_in_storage(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    (kept.root / "no folder").write_bytes(b"")
    kept.desk.order("discard", "t1", ["no folder/checkpoint_000000"])
    stuck = str(kept.root / "no folder" / "checkpoint_000000")
    _, where, why = await kept.desk.answer("stuck")
    assert where == stuck
    assert why.startswith("Not a directory")
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("left") == ["left", [f"{stuck}: {why}"]]
    assert await kept.desk.answer("closed") == ["closed", []]


async def test_what_is_being_read_at_the_end_is_listed_and_then_left(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    with Checkpoint(kept.root / FOLDER).as_directory():
        kept.desk.order("discard", "t1", [FOLDER])
        kept.desk.order("close", 30.0, False)
        place = kept.root / FOLDER
        assert await kept.desk.answer("left") == ["left", [f"{place}: it is being read"]]
        assert await kept.desk.answer("closed") == ["closed", []]
        assert (kept.root / FOLDER / "model").exists()


async def test_what_was_being_read_goes_at_the_end_if_the_reader_has_left(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    with Checkpoint(kept.root / FOLDER).as_directory():
        kept.desk.order("discard", "t1", [FOLDER])
        kept.desk.order("commit", "t1", 1, "trial", 1, 0.5)  # after it, in the same lane
        await kept.desk.answer("committed")
        assert (kept.root / FOLDER).exists()
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("closed") == ["closed", []]
    assert not (kept.root / FOLDER).exists()


async def test_a_bucket_that_forbids_deletions_is_reported_once_and_no_error_of_the_run(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    forbidding = Forbidding(kept.memory)
    keeping(forbidding)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("committed")
    kept.desk.order("discard", "t1", [FOLDER])
    for _ in range(2):
        sealed = kept.grow()
        kept.desk.publish(sealed)
        assert await kept.desk.answer("published") == told_of(sealed)
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("closed") == ["closed", []]
    ((_, where, why),) = [message for message in kept.desk.heard if message[0] == "stuck"]
    assert where == f"memory/{FOLDER}"
    assert "AccessDenied" in why
    ((_, lines),) = [message for message in kept.desk.heard if message[0] == "left"]
    assert lines == [f"{where}: {why}"]


async def test_the_end_does_not_wait_for_a_storage_that_does_not_delete_and_lists_it(
    kept: Kept, keeping: Callable[[Store], Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publication is complete: a hung deletion is not an error of the run."""
    monkeypatch.setattr(process, "_TIDY_S", 0.2)
    store = StallingDeletions(kept.memory)
    keeping(store)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("committed")
    kept.desk.order("discard", "t1", [FOLDER])
    kept.desk.publish(kept.grow())
    await kept.desk.answer("published")
    await store.stalled.wait()
    # Nor does a later publication wait for it.
    sealed = kept.grow()
    kept.desk.publish(sealed)
    assert await kept.desk.answer("published") == told_of(sealed)
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("left") == ["left", [f"memory/{FOLDER}: not done yet"]]
    assert await kept.desk.answer("closed") == ["closed", []]


async def test_an_upload_that_is_under_way_is_ended_before_its_checkpoint_is_discarded(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    """As if the previous uploader had committed it and died before it could report it."""
    store = FaultyStore(kept.memory)
    keeping(store)
    await kept.desk.answer("opened")
    store.disturb(at=store.operations + 3, fault=Fault.STALL)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    kept.desk.order("discard", "t1", [FOLDER])
    await store.stalled.wait()
    assert (kept.root / FOLDER / "model").exists()
    store.release()
    assert await kept.desk.answer("committed") == ["committed", "t1", 0]
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("closed") == ["closed", []]
    assert not (kept.root / FOLDER).exists()


async def test_a_publication_removes_what_was_discarded_before_it_was_ordered(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("committed")
    kept.desk.order("discard", "t1", [FOLDER])
    sealed = kept.grow()
    kept.desk.publish(sealed)
    assert await kept.desk.answer("published") == told_of(sealed)
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("closed") == ["closed", []]
    assert kept.objects_of(FOLDER) == []
    assert not (kept.root / FOLDER).exists()


async def test_what_is_discarded_after_a_publication_was_ordered_outlives_it(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    """Its records still name it, also if it had to wait for the publication before."""
    counted = FaultyStore(kept.memory)
    keeping(counted)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("committed")
    counted.disturb(at=counted.operations + 1, fault=Fault.STALL)
    kept.desk.publish(kept.grow())
    await counted.stalled.wait()
    second = kept.grow()
    kept.desk.publish(second)
    kept.desk.order("discard", "t1", [FOLDER])
    counted.release()
    while await kept.desk.answer("published") != told_of(second):
        continue
    assert kept.named() == [segment_name(0)]
    assert f"{FOLDER}/.holdfast.json" in kept.objects_of(FOLDER)

    kept.desk.publish(kept.grow())
    await kept.desk.answer("published")
    kept.desk.order("close", 30.0, False)
    await kept.desk.answer("closed")
    assert kept.objects_of(FOLDER) == []


async def test_what_a_failed_publication_was_to_remove_is_removed_by_the_next(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5)
    await kept.desk.answer("committed")
    kept.desk.order("discard", "t1", [FOLDER])
    end = kept.grow()
    kept.desk.publish(replace(end, segment=end.segment + 1))
    await kept.desk.answer("failed")
    assert kept.objects_of(FOLDER) != []
    kept.desk.publish(end)
    await kept.desk.answer("published")
    kept.desk.order("close", 30.0, False)
    assert await kept.desk.answer("closed") == ["closed", []]
    assert kept.objects_of(FOLDER) == []


async def test_a_publication_that_failed_is_reported_at_the_end_also_where_it_was_ordered_twice(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory)
    keeping(store)
    await kept.desk.answer("opened")
    store.disturb(at=store.operations + 1, fault=Fault.STALL)
    sealed = kept.grow()
    kept.desk.publish(sealed)
    await store.stalled.wait()
    for _ in range(2):
        kept.desk.publish(replace(sealed, segment=9))
    store.release()
    await kept.desk.answer("failed")
    kept.desk.order("close", 30.0, False)
    _, missing = await kept.desk.answer("closed")
    assert [text.partition(":")[0] for text in missing] == ["publish the records"]


def test_orders_travel_to_the_process() -> None:
    settings = UploaderSettings(
        root=Path("/somewhere"),
        storage=Location.resolve("/elsewhere", None, {}),
        experiment_id="an experiment",
        journal="journal",
        head="head.json",
        is_record=str.isidentifier,
        is_checkpoint=is_checkpoint,
    )
    assert pickle.loads(pickle.dumps(settings)) == settings


def in_a_directory(kept: Kept, there: Path) -> UploaderSettings:
    return replace(kept.settings(kept.memory), storage=Location.resolve(there, None, {}))


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


async def test_what_an_upload_that_was_killed_left_in_a_directory_goes(
    kept: Kept, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("there")
    (there / FOLDER).mkdir(parents=True)
    (there / FOLDER / ".tmp-0123456789abcdef").write_bytes(b"half of the weigh")
    await open_and_commit(in_a_directory(kept, there))
    assert tree(there / FOLDER) == [".holdfast.json", "model"]


async def test_of_a_superseded_checkpoint_nothing_stays_in_a_directory(
    kept: Kept, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("there")
    (kept.root / FOLDER / "nested" / "deep").mkdir(parents=True)
    (kept.root / FOLDER / "nested" / "deep" / "more").write_bytes(b"more")
    uploader = Uploader(in_a_directory(kept, there), lambda message: None)
    await uploader.open()
    await uploader.commit("t1", 0, FOLDER)
    (there / FOLDER / ".tmp-0123456789abcdef").write_bytes(b"a put that was killed")
    await uploader.publish(kept.grow(), 0)
    await uploader.remove([FOLDER])
    assert tree(there) == [
        ".epochs",
        ".epochs/000001",
        "head.json",
        "journal",
        "journal/000000.log",
    ]


async def test_a_fetched_checkpoint_has_its_empty_folders(kept: Kept) -> None:
    (kept.root / FOLDER / "empty" / "deep").mkdir(parents=True)
    uploader = Uploader(kept.settings(kept.memory), lambda message: None)
    await uploader.open()
    await uploader.commit("t1", 0, FOLDER)
    before = tree(kept.root / FOLDER)
    await uploader.discard([FOLDER])
    await uploader.fetch(FOLDER)
    assert tree(kept.root / FOLDER) == before


def reached(iteration: int, trial_id: str = "t1") -> TrialProgress:
    return TrialProgress(trial_id=trial_id, iteration=iteration, time_total_s=iteration / 2)


async def test_whole_checkpoints_of_a_trial_are_found_newest_first(kept: Kept) -> None:
    uploader = Uploader(kept.settings(kept.memory), lambda message: None)
    await uploader.open()
    said = {
        0: reached(1),
        1: reached(2),
        2: reached(3),
        3: reached(4),
        4: None,  # by an earlier version
        5: reached(6, "t2"),
        1_000_000: reached(7),
    }
    for number, known in said.items():
        folder = f"trial/checkpoint_{number:06d}"
        (kept.root / folder).mkdir(exist_ok=True)
        (kept.root / folder / "model").write_bytes(b"weights")
        await uploader.commit("t1", number, folder, progress=known)
    kept.memory.objects["trial/checkpoint_000003/model"] = b"cut"
    del kept.memory.objects["trial/checkpoint_000000/.holdfast.json"]
    assert await uploader.find("t1", "trial", "checkpoint_000000") == [
        ["checkpoint_1000000", 7, 3.5, 1, 7],
        ["checkpoint_000002", 3, 1.5, 1, 7],
        ["checkpoint_000001", 2, 1.0, 1, 7],
    ]
    assert await uploader.find("t1", "trial", "checkpoint_000002") == [
        ["checkpoint_1000000", 7, 3.5, 1, 7],
        ["checkpoint_000002", 3, 1.5, 1, 7],
    ]
    assert await uploader.find("t1", "other", "checkpoint_000000") == []


async def test_an_order_to_find_is_answered_with_what_is_there(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    kept.desk.order("commit", "t1", 0, FOLDER, 3, 1.5)
    await kept.desk.answer("committed")
    kept.desk.order("find", "a ticket", "t1", "trial", "checkpoint_000000")
    found = [["checkpoint_000000", 3, 1.5, 1, 7]]
    assert await kept.desk.answer("found") == ["found", "a ticket", found]


@pytest.mark.parametrize(
    "order",
    [("find", "a ticket", "t1", "trial", "checkpoint_000000"), ("fetch", "a ticket", FOLDER)],
)
async def test_who_asks_a_storage_that_does_not_answer_hears_of_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    settings = replace(kept.settings(StallingReads(kept.memory)), timeout_s=1)
    serving = asyncio.create_task(UploaderProcess(kept.desk, settings).serve())
    kept.desk.order(*order)
    _, ticket, why = await kept.desk.answer("unanswered")
    assert ticket == "a ticket"
    assert "no progress within 1 s" in why
    kept.desk.hang_up()
    await serving
    kept.journal.abandon()


async def test_an_empty_mount_point_is_not_a_storage_without_checkpoints(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    await kept.desk.answer("opened")
    kept.memory.objects.clear()
    kept.desk.order("find", "a ticket", "t1", "trial", "checkpoint_000000")
    assert "Is it still mounted?" in (await kept.desk.answer("trouble"))[1]


async def test_a_download_that_fails_leaves_nothing_here(kept: Kept) -> None:
    store = FaultyStore(kept.memory, error=StorageRefused("get", "faulty", "injected refusal"))
    uploader = Uploader(kept.settings(store), lambda message: None)
    await uploader.open()
    await uploader.commit("t1", 0, FOLDER)
    await uploader.discard([FOLDER])
    at = store.operations + 3  # after the listing and the manifest
    store.disturb(at=at, fault=Fault.FAIL)
    with pytest.raises(StorageRefused):
        await uploader.fetch(FOLDER)
    assert store.log[at - 1][0] == "get"
    assert tree(kept.root / "trial") == []


async def test_before_a_checkpoint_is_committed_its_name_is_on_the_disk(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, forced = os.fsync, []

    def note(descriptor: int) -> None:
        forced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    uploader = Uploader(replace(kept.settings(kept.memory), storage=None), lambda message: None)
    await uploader.open()
    await uploader.commit("t1", 0, FOLDER)
    folders = [str(kept.root / FOLDER), str(kept.root / FOLDER / "model")]
    assert {str(kept.root), str(kept.root / "trial"), *folders} <= set(forced)


async def test_a_checkpoint_that_waits_for_its_turn_is_held_to_no_deadline(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, may_end = os.fsync, threading.Event()

    def held(descriptor: int) -> None:
        may_end.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", held)
    monkeypatch.setattr(keeper_room, "_SEALED_AT_ONCE", 1)
    told: list[list[Any]] = []
    uploader = Uploader(replace(kept.settings(kept.memory), storage=None), told.append)
    second = "trial/checkpoint_000001"
    shutil.copytree(kept.root / FOLDER, kept.root / second)
    commits = [
        asyncio.ensure_future(uploader.commit("t1", index, folder))
        for index, folder in enumerate([FOLDER, second])
    ]
    try:
        await asyncio.sleep(0)
        assert list(uploader.unfinished) == [f"commit {FOLDER}"]
    finally:
        may_end.set()
        await asyncio.gather(*commits)
    assert told == [["committed", "t1", 0], ["committed", "t1", 1]]


async def test_a_storage_that_was_taken_further_before_it_became_ours_is_not_continued(
    kept: Kept,
) -> None:
    """Objects that its head no longer names are removed there, and the local records may name
    them."""
    sealed = kept.grow()
    first = Uploader(kept.settings(kept.memory), lambda message: None)
    await first.open()
    await first.publish(sealed, 0)
    behind = replace(kept.settings(kept.memory), root=kept.root / "behind")
    (behind.root / "journal").mkdir(parents=True)
    with pytest.raises(ClaimLost, match="another machine has continued the experiment"):
        await Uploader(behind, lambda message: None).open()
    segment = (kept.root / "journal" / segment_name(0)).read_bytes()
    (behind.root / "journal" / segment_name(0)).write_bytes(segment + b"and more")
    assert await Uploader(behind, lambda message: None).open() == Claim(3)


async def test_what_the_uploader_before_left_in_a_directory_goes(
    kept: Kept, tmp_path: Path
) -> None:
    """The uploader was killed while it put one object, and while it removed a checkpoint."""
    storage = tmp_path / "storage"
    await open_and_commit(kept.settings(LocalStore(storage)))
    half = storage / FOLDER / ".tmp-0123456789abcdef"
    half.write_text("half of it")
    emptied = storage / "trial" / "checkpoint_000001"
    emptied.mkdir()
    uploader = Uploader(kept.settings(LocalStore(storage)), lambda message: None)
    await uploader.open()
    assert not half.exists()
    await uploader.remove(["trial/checkpoint_000001"])
    assert not emptied.exists()
    assert (storage / MARKER).exists()


@pytest.mark.parametrize("decides", [True, False])
async def test_a_storage_that_cannot_tell_two_restores_apart_is_reported_at_a_restore(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, decides: bool
) -> None:
    monkeypatch.setattr(MemoryStore, "conditional_puts", decides)
    told: list[list[Any]] = []
    await Uploader(kept.settings(kept.memory), told.append).open()
    assert told == []
    await Uploader(kept.settings(kept.memory), told.append).open()
    assert [kind for kind, *_ in told] == ([] if decides else ["warning"])


async def test_a_manifest_that_an_older_run_put_meanwhile_is_found_without_conditional_puts(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before the listing that confirms the files; then these are compared again."""
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(MemoryStore, "conditional_puts", False)
    confirm, late = Upload._confirm, [MARKER, f"{FOLDER}/model"]

    async def be_late(upload: Upload) -> list[ObjectInfo]:
        while late:
            await kept.memory.put(late.pop(), b"of the older run")
        return await confirm(upload)

    monkeypatch.setattr(Upload, "_confirm", be_late)
    await open_and_commit(kept.settings(kept.memory))
    assert kept.memory.objects[f"{FOLDER}/model"] == (kept.root / FOLDER / "model").read_bytes()
    assert kept.memory.objects[MARKER] == (kept.root / MARKER).read_bytes()


async def test_what_a_storage_only_says_to_have_kept_is_put_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each put in turn is answered with success, but not performed."""
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.01)
    sealed = kept.grow()

    async def run(store: FaultyStore) -> None:
        uploader = Uploader(kept.settings(store), lambda message: None)
        await uploader.open()
        await uploader.commit("t1", 0, FOLDER)
        await uploader.publish(sealed, 0)

    smooth = FaultyStore(MemoryStore())
    await run(smooth)
    puts = [at for at, (what, _) in enumerate(smooth.log, 1) if what == "put"]
    assert len(puts) == 5  # a claim, the model and its manifest, a segment, the head
    for at in puts:
        memory = MemoryStore()
        await run(FaultyStore(memory, at=at, fault=Fault.PRETEND))
        assert memory.objects == cast(MemoryStore, smooth.inner).objects, smooth.log[at - 1]


async def test_what_a_restore_needs_in_addition_to_the_journal_is_in_storage_before_it(
    kept: Kept,
) -> None:
    """With a journal and no head yet, a restore takes the journal."""
    (kept.root / "tuner.pkl").write_bytes(b"a trainable")
    store = FaultyStore(kept.memory)
    uploader = Uploader(
        replace(kept.settings(store), is_record=lambda key: key == "tuner.pkl"), lambda told: None
    )
    await uploader.open()
    await uploader.publish(kept.grow(), 0)
    await uploader.close()
    put = [key for operation, key in store.log if operation == "put"]
    assert put.index("tuner.pkl") < put.index("journal/000000.log") < put.index("head.json")
    kept.journal.abandon()
