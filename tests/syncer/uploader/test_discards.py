"""Discards of checkpoints: after which publication they go, and what cannot be removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.journal.journal import Position, segment_name
from holdfast.syncer.stores.store import Store
from holdfast.syncer.uploader import process
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore
from tests.syncer.uploader.kept import FOLDER, Kept
from tests.syncer.uploader.kept import keeping as keeping
from tests.syncer.uploader.kept import kept as kept

pytestmark = pytest.mark.anyio


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


def told_of(end: Position) -> list[Any]:
    """The message when everything before `end` is visible."""
    return ["published", end.segment, end.offset]


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


async def test_a_bucket_that_forbids_deletions_is_reported_once_and_no_error_of_the_run(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    forbidding = Forbidding(kept.memory)
    keeping(forbidding)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
