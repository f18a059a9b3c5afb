"""Removal of superseded checkpoints, here and in storage, and those that cannot be removed yet."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.removals import LocalRemovals, StoredRemovals
from holdfast.syncer.errors import CheckpointGone, StorageRefused, StorageUnavailable
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.owned_store import ClaimLost, OwnedStore
from holdfast.syncer.stores.store import Store
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore

pytestmark = pytest.mark.anyio

FOLDERS = [f"trial/checkpoint_{number:06d}" for number in range(3)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "model").write_bytes(b"weights")
        (tmp_path / folder / MANIFEST_NAME).write_bytes(b"{}")
    return tmp_path


class Told:
    """The receiver of refusals."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, str]] = []
        self.first = asyncio.Event()

    def __call__(self, where: str, why: str) -> None:
        self.refusals.append((where, why))
        self.first.set()


@pytest.fixture
def told() -> Told:
    return Told()


# -- here -----------------------------------------------------------------------------------------


async def test_what_is_superseded_goes_and_what_is_gone_is_fine(root: Path, told: Told) -> None:
    removals = LocalRemovals(root, told)
    await removals.remove([*FOLDERS[:2], "trial/checkpoint_000009"])
    assert os.listdir(root / "trial") == ["checkpoint_000002"]
    assert list(removals.left) == []
    assert told.refusals == []


async def test_nothing_is_removed_behind_a_link(root: Path, told: Told) -> None:
    removals = LocalRemovals(root, told)
    (root / "trial").rename(root / "theirs")
    (root / "trial").symlink_to(root / "theirs")
    await removals.remove([FOLDERS[0]], at_last=True)
    assert sorted(os.listdir(root / "theirs")) == [name.split("/")[1] for name in FOLDERS]
    assert list(removals.left) == [
        f"{root / FOLDERS[0]}: {root / 'trial'} is a link, which may lead elsewhere"
    ]


async def test_what_is_being_read_goes_with_the_next_and_no_one_is_informed(
    root: Path, told: Told
) -> None:
    removals = LocalRemovals(root, told)
    with Checkpoint(root / FOLDERS[0]).as_directory() as path:
        await removals.remove(FOLDERS[:1])
        assert list(removals.left) == [f"{root / FOLDERS[0]}: it is being read"]
        assert sorted(os.listdir(path)) == [MANIFEST_NAME, "model"]
    await removals.remove(FOLDERS[1:2])
    assert os.listdir(root / "trial") == ["checkpoint_000002"]
    assert list(removals.left) == []
    assert told.refusals == []


@pytest.fixture
def stubborn(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes the system refuse to delete files, like those of another user or immutable ones."""
    rmtree, is_refused = shutil.rmtree, True

    def refused(path: Any, *args: Any, **kwargs: Any) -> None:
        if is_refused:
            raise OSError(1, "Operation not permitted", f"{path}/model")
        rmtree(path, *args, **kwargs)

    def turn(on: bool) -> None:
        nonlocal is_refused
        is_refused = on

    monkeypatch.setattr(shutil, "rmtree", refused)
    return turn


async def test_a_refusal_is_reported_and_retried_but_not_at_once(
    root: Path, told: Told, stubborn: Callable[[bool], None]
) -> None:
    removals = LocalRemovals(root, told)
    await removals.remove(FOLDERS[:1])
    ((where, why),) = told.refusals
    # Readers do not see it, nevertheless.
    assert Path(where).name.startswith(".removed-")
    assert not (root / FOLDERS[0]).exists()
    assert why == f"Operation not permitted: {where}/model"
    stubborn(False)
    await removals.remove(FOLDERS[1:2])
    assert list(removals.left) == [f"{where}: {why}"]
    await removals.remove(at_last=True)
    assert list(removals.left) == []
    assert os.listdir(root / "trial") == ["checkpoint_000002"]


async def test_what_is_refused_is_retried_after_longer_and_longer_pauses(
    root: Path, told: Told, stubborn: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("holdfast.syncer.checkpoint.removals.time.monotonic", lambda: now_s)
    removals = LocalRemovals(root, told)
    tried_at = []
    for now_s in range(1000, 1200):
        before = len(told.refusals)
        await removals.remove(FOLDERS[:1] if now_s == 1000 else ())
        if len(told.refusals) > before:
            tried_at.append(now_s - 1000)
    assert tried_at == [0, 1, 3, 7, 15, 31, 63, 123, 183]


# -- in storage -----------------------------------------------------------------------------------


async def owned(store: Store, here: Path | None, told: Told) -> StoredRemovals:
    storage = OwnedStore(store, where="there", experiment_id="e", parallel=4)
    await storage.claim()
    return StoredRemovals(storage, here, timeout_s=1800, refused=told)


def filled() -> MemoryStore:
    return MemoryStore(
        {
            f"{folder}/{name}": b"x"
            for folder in [*FOLDERS, "other/checkpoint_000000"]
            for name in ("model", MANIFEST_NAME, "nested/more")
        }
    )


def kept(store: MemoryStore) -> set[str]:
    return {key.rpartition("/")[0] for key in store.objects if "checkpoint" in key} - {
        f"{folder}/nested" for folder in [*FOLDERS, "other/checkpoint_000000"]
    }


async def test_all_of_them_go_from_storage_and_no_other(told: Told) -> None:
    memory = filled()
    removals = await owned(memory, None, told)
    await removals.remove([FOLDERS[0], "other/checkpoint_000000", "trial/checkpoint_00000"])
    assert kept(memory) == {FOLDERS[1], FOLDERS[2]}
    assert list(removals.left) == []


async def test_a_manifest_goes_before_the_rest(told: Told) -> None:
    store = FaultyStore(filled())
    removals = await owned(store, None, told)
    await removals.remove(FOLDERS[:1])
    deleted = [key for operation, key in store.log if operation == "delete"]
    assert deleted[0] == f"{FOLDERS[0]}/{MANIFEST_NAME}"
    assert len(deleted) == 3


async def test_a_refusal_in_storage_is_reported_and_retried_with_the_next(told: Told) -> None:
    memory = filled()
    error = StorageRefused("delete", FOLDERS[0], "AccessDenied")
    store = FaultyStore(memory, error=error)
    removals = await owned(store, None, told)
    await removals.remove(["trial/checkpoint_000009"])
    store.disturb(at=store.operations + 2, fault=Fault.FAIL, lasting=True)
    await removals.remove([FOLDERS[0], "other/checkpoint_000000"])
    assert [where for where, _ in told.refusals] == [
        "there/other/checkpoint_000000",
        f"there/{FOLDERS[0]}",
    ]
    assert all("AccessDenied" in line for line in removals.left)
    assert len(list(removals.left)) == 2
    store.disturb(at=0, fault=Fault.FAIL)
    await removals.remove([FOLDERS[1]])
    assert kept(memory) == {FOLDERS[2]}
    assert list(removals.left) == []


async def test_a_storage_that_is_busy_is_asked_again(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.01)
    memory = filled()
    store = FaultyStore(memory, error=StorageUnavailable("delete", "x", "503 SlowDown"))
    removals = await owned(store, None, told)
    store.disturb(at=store.operations + 2, fault=Fault.FAIL)
    await removals.remove(FOLDERS)
    assert kept(memory) == {"other/checkpoint_000000"}
    ((where, why),) = told.refusals
    assert where == "there"
    assert "503 SlowDown" in why


async def test_a_newer_incarnation_is_not_robbed(told: Told) -> None:
    memory = filled()
    removals = await owned(memory, None, told)
    memory.objects[f"{CLAIMS}/000002"] = b""
    with pytest.raises(ClaimLost):
        await removals.remove(FOLDERS)
    assert set(FOLDERS) <= kept(memory)


async def test_a_directory_that_serves_as_storage_is_not_removed_under_its_readers(
    root: Path, told: Told
) -> None:
    removals = await owned(LocalStore(root), root, told)
    with Checkpoint(root / FOLDERS[0]).as_directory() as path:
        await removals.remove(FOLDERS)
        assert sorted(os.listdir(path)) == [MANIFEST_NAME, "model"]
        assert os.listdir(root / "trial") == ["checkpoint_000000"]
        assert list(removals.left) == [f"there/{FOLDERS[0]}: it is being read"]
    await removals.remove()
    assert not (root / "trial").exists()
    assert (list(removals.left), told.refusals) == ([], [])


async def test_what_is_half_removed_from_such_a_directory_is_not_read(
    root: Path, told: Told
) -> None:
    """Neither during the removal, nor after the uploader was killed in it."""
    store = FaultyStore(LocalStore(root))
    removals = await owned(store, root, told)
    checkpoint = Checkpoint(root / FOLDERS[0])
    store.disturb(at=store.operations + 5, fault=Fault.STALL)
    removing = asyncio.create_task(removals.remove(FOLDERS[:1]))
    await store.stalled.wait()
    assert store.log[-1] == ("delete", f"{FOLDERS[0]}/model")
    with pytest.raises(CheckpointGone, match="it is being removed"):
        checkpoint.to_directory()
    removing.cancel()
    await asyncio.wait([removing])
    assert os.listdir(root / FOLDERS[0]) == ["model"]
    with pytest.raises(CheckpointGone, match="no manifest"):
        checkpoint.to_directory()
