"""Commits of checkpoints: what is in storage then, and what a fault or an older run changes."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.schema import to_row
from holdfast.syncer.checkpoint.upload import Upload
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.owned_store import ClaimLost
from holdfast.syncer.stores.store import ObjectInfo, Store
from holdfast.syncer.uploader import uploader as uploader_room
from holdfast.syncer.uploader.messages import Answer
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.answers import commit_of, rows
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore
from tests.syncer.uploader.kept import FOLDER, MARKER, Kept, open_and_commit, stage
from tests.syncer.uploader.kept import keeping as keeping
from tests.syncer.uploader.kept import kept as kept

pytestmark = pytest.mark.anyio


async def test_a_committed_checkpoint_is_in_storage_and_its_manifest_came_last(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory)
    keeping(store)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    uploading = asyncio.create_task(old.commit(commit_of("t1", 0, FOLDER)))
    await held.stalled.wait()

    stage(tmp_path / "elsewhere", b"newer weights")
    await open_and_commit(replace(kept.settings(kept.memory), root=tmp_path / "elsewhere"))
    committed = dict(kept.memory.objects)
    assert committed[f"{FOLDER}/model"] == b"newer weights"
    held.release()
    with pytest.raises(ClaimLost):
        await uploading
    assert kept.memory.objects == committed


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

    def tell(answer: Answer) -> None:
        told.append(message := to_row(answer))
        if len(told) == 1:
            assert message[0] == "trouble"
            assert kept.memory.objects == {}
            kept.memory.objects |= unmounted

    uploader = Uploader(kept.settings(kept.memory), tell)
    await uploader.open()
    if not is_here:
        kept.memory.objects |= {f"{FOLDER}/model": b"weights", MARKER: kept.lose_local()}
    unmounted |= kept.memory.objects
    kept.memory.objects.clear()
    await uploader.commit(commit_of("t1", 0, FOLDER))
    assert [message[0] for message in told] == ["trouble", "trouble", "committed"]
    assert "Is it still mounted?" in told[0][1]
    assert told[1][1].endswith("answers again")
    assert len(kept.objects_of(FOLDER)) == 2


async def test_a_checkpoint_that_is_committed_after_all_is_not_missing_at_the_end(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory, error=StorageRefused("put", "faulty", "injected refusal"))
    keeping(store)
    await kept.desk.answer("opened")
    store.disturb(at=store.operations + 1, fault=Fault.FAIL)
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    await kept.desk.answer("uncommitted")
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
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
    kept.desk.order("commit", "t1", 0, FOLDER, 1, 0.5, False)
    kept.desk.order("discard", "t1", [FOLDER])
    kept.desk.order("commit", "t2", 0, f"other/{FOLDER}", 1, 0.5, False)
    kept.desk.order("close", 30.0, False)
    _, missing = await kept.desk.answer("closed")
    assert [text.partition(":")[0] for text in missing] == [f"other/{FOLDER}"]


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
    await uploader.commit(commit_of("t1", 0, FOLDER))
    folders = [str(kept.root / FOLDER), str(kept.root / FOLDER / "model")]
    assert {str(kept.root), str(kept.root / "trial"), *folders} <= set(forced)


async def test_a_checkpoint_that_waits_for_its_turn_is_held_to_no_deadline(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, both = os.fsync, threading.Barrier(2)
    under_way: set[tuple[str, ...]] = set()

    def slow(descriptor: int) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # the other one does not come
        under_way.add(tuple(uploader.unfinished))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(uploader_room, "_SEALED_AT_ONCE", 1)
    told: list[list[Any]] = []
    uploader = Uploader(replace(kept.settings(kept.memory), storage=None), rows(told))
    second = "trial/checkpoint_000001"
    shutil.copytree(kept.root / FOLDER, kept.root / second)
    await asyncio.gather(
        uploader.commit(commit_of("t1", 0, FOLDER)), uploader.commit(commit_of("t1", 1, second))
    )
    assert under_way == {(f"commit {FOLDER}",), (f"commit {second}",)}
    assert sorted(told) == [["committed", "t1", 0], ["committed", "t1", 1]]


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
        await uploader.commit(commit_of("t1", 0, FOLDER))
        await uploader.publish(sealed, 0)

    smooth = FaultyStore(MemoryStore())
    await run(smooth)
    puts = [at for at, (what, _) in enumerate(smooth.log, 1) if what == "put"]
    assert len(puts) == 5  # a claim, the model and its manifest, a segment, the head
    for at in puts:
        memory = MemoryStore()
        await run(FaultyStore(memory, at=at, fault=Fault.PRETEND))
        assert memory.objects == cast(MemoryStore, smooth.inner).objects, smooth.log[at - 1]
