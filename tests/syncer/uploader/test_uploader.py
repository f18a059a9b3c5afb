"""Checkpoints that are found and fetched, folders as storage, and what an opening finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.schema import to_row
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.journal.journal import segment_name
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim, ClaimLost
from holdfast.syncer.stores.store import ObjectInfo, Store
from holdfast.syncer.uploader.process import UploaderProcess
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.answers import commit_of, rows
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore
from tests.syncer.uploader.kept import FOLDER, MARKER, Kept, open_and_commit
from tests.syncer.uploader.kept import keeping as keeping
from tests.syncer.uploader.kept import kept as kept

pytestmark = pytest.mark.anyio


class StallingReads(MemoryStore):
    """A server that accepts everything, and returns nothing of checkpoints."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory.objects)

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        if prefix.startswith("trial"):
            await asyncio.Event().wait()
        return await super().list(prefix, leftovers=leftovers)


def in_a_directory(kept: Kept, there: Path) -> UploaderSettings:
    return replace(kept.settings(kept.memory), storage=Location.resolve(there, None, {}))


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


async def test_of_a_superseded_checkpoint_nothing_stays_in_a_directory(
    kept: Kept, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("there")
    (kept.root / FOLDER / "nested" / "deep").mkdir(parents=True)
    (kept.root / FOLDER / "nested" / "deep" / "more").write_bytes(b"more")
    uploader = Uploader(in_a_directory(kept, there), lambda message: None)
    await uploader.open()
    await uploader.commit(commit_of("t1", 0, FOLDER))
    (there / FOLDER / ".tmp-0123456789abcdef").write_bytes(b"a put that was killed")
    await uploader.publish(kept.grow(), 0)
    await uploader.remove_stored([FOLDER])
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
    await uploader.commit(commit_of("t1", 0, FOLDER))
    before = tree(kept.root / FOLDER)
    await uploader.remove_here([FOLDER])
    (kept.root / FOLDER / "left by another attempt").mkdir(parents=True)
    await uploader.fetch(FOLDER)
    assert tree(kept.root / FOLDER) == before


async def test_each_file_of_a_checkpoint_that_is_fetched_is_progress(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one takes longer than `sync_timeout`, which is for a storage that stands still."""
    for number in range(3):
        (kept.root / FOLDER / f"shard-{number}").write_bytes(b"weights")
    heard: list[Any] = []
    uploader = Uploader(kept.settings(kept.memory), rows(heard))
    await uploader.open()
    await uploader.commit(commit_of("t1", 0, FOLDER))
    await uploader.remove_here([FOLDER])
    monkeypatch.setattr(retry, "_MOVES_EVERY_S", 0.0)
    heard.clear()
    await uploader.fetch(FOLDER)
    assert heard.count(["moving"]) == 4


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
        5: reached(6, "t2"),
        1_000_000: reached(7),
    }
    for number, known in said.items():
        folder = f"trial/checkpoint_{number:06d}"
        (kept.root / folder).mkdir(exist_ok=True)
        (kept.root / folder / "model").write_bytes(b"weights")
        await uploader.commit(
            commit_of(known.trial_id, number, folder, known.iteration, known.time_total_s)
        )
    kept.memory.objects["trial/checkpoint_000003/model"] = b"cut"
    del kept.memory.objects["trial/checkpoint_000000/.holdfast.json"]
    assert [to_row(one) for one in await uploader.find("t1", "trial", "checkpoint_000000")] == [
        ["checkpoint_1000000", 7, 3.5, 1, 7],
        ["checkpoint_000002", 3, 1.5, 1, 7],
        ["checkpoint_000001", 2, 1.0, 1, 7],
    ]
    found = await uploader.find("t1", "trial", "checkpoint_000002")
    assert [one.folder for one in found] == ["checkpoint_1000000", "checkpoint_000002"]
    assert await uploader.find("t1", "other", "checkpoint_000000") == []


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
    await uploader.commit(commit_of("t1", 0, FOLDER))
    await uploader.remove_here([FOLDER])
    at = store.operations + 3  # after the listing and the manifest
    store.disturb(at=at, fault=Fault.FAIL)
    with pytest.raises(StorageRefused):
        await uploader.fetch(FOLDER)
    assert store.log[at - 1][0] == "get"
    assert tree(kept.root / "trial") == []


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
    await uploader.remove_stored(["trial/checkpoint_000001"])
    assert not emptied.exists()
    assert (storage / MARKER).exists()


@pytest.mark.parametrize("decides", [True, False])
async def test_a_storage_that_cannot_tell_two_restores_apart_is_reported_at_a_restore(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, decides: bool
) -> None:
    monkeypatch.setattr(MemoryStore, "conditional_puts", decides)
    told: list[list[Any]] = []
    await Uploader(kept.settings(kept.memory), rows(told)).open()
    assert told == []
    await Uploader(kept.settings(kept.memory), rows(told)).open()
    assert [kind for kind, *_ in told] == ([] if decides else ["warning"])


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
