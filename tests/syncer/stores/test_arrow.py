"""Operations that cannot be interrupted are never overtaken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.stores import generic
from holdfast.syncer.stores import retry as retries
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.retry import StorageRetry
from tests.syncer.stores.test_fsspec_store import Coroutines

pytestmark = pytest.mark.anyio


class Gate:
    """A gate that blocks callers while it is shut."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def pass_through(self) -> None:
        assert self.opened.wait(60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


@pytest.fixture
def place(tmp_path: Path, gate: Gate) -> Location:
    """A disk whose renames and removals wait at the gate."""
    from fsspec.implementations.local import LocalFileSystem

    class Stalling(LocalFileSystem):  # type: ignore[misc]
        cachable = False

        def mv(self, *args: Any, **kwargs: Any) -> None:
            gate.pass_through()
            super().mv(*args, **kwargs)

        def rm_file(self, path: str) -> None:
            gate.pass_through()
            super().rm_file(path)

    return Location.resolve(str(tmp_path / "root"), Stalling(), {})


def retry() -> StorageRetry:
    return StorageRetry(timeout_s=60, where="here", tell=lambda text: None)


async def test_a_put_that_was_given_up_does_not_come_after_a_newer_one(
    place: Location, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generic, "allowance_s", lambda size: 0.2)
    store = place.open_store()
    with pytest.raises(StorageUnavailable, match="no answer within the deadline"):
        await store.put("head.json", b"older")
    with pytest.raises(StorageUnavailable, match="may still take effect"):
        await store.put("head.json", b"newer")
    gate.opened.set()
    await retry().until_done("put", lambda: store.put("head.json", b"newer"))
    assert await store.read("head.json") == b"newer"


async def test_a_removal_that_was_given_up_does_not_take_what_is_put_after_it(
    place: Location, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generic, "LOOKUP_S", 0.2)
    store = place.open_store()
    gate.opened.set()
    await store.put("manifest", b"older")
    gate.opened.clear()
    with pytest.raises(StorageUnavailable, match="no answer within the deadline"):
        await store.delete(["manifest"])
    with pytest.raises(StorageUnavailable, match="may still take effect"):
        await store.put("manifest", b"newer")
    gate.opened.set()
    await retry().until_done("put", lambda: store.put("manifest", b"newer"))
    assert await store.read("manifest") == b"newer"


async def test_each_piece_of_a_large_file_is_progress(
    place: Location, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of a large model takes longer than `sync_timeout`."""
    monkeypatch.setattr(retries, "_MOVES_EVERY_S", 0.0)
    monkeypatch.setattr(generic, "_CHUNK_BYTES", 1000)
    gate.opened.set()
    moves: list[None] = []
    waits = StorageRetry(timeout_s=60, where="here", tell=print, moving=lambda: moves.append(None))
    (tmp_path / "large").write_bytes(bytes(3500))
    store = place.open_store()
    await waits.until_done("upload", lambda: store.put("large", tmp_path / "large"))
    assert len(moves) == 4
    await waits.until_done("fetch", lambda: store.get("large", tmp_path / "copy"))
    assert len(moves) == 8


async def test_the_time_in_which_others_have_all_the_slots_is_not_the_storages(
    place: Location, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen large uploads take minutes, and a removal must not fail meanwhile."""
    monkeypatch.setattr(generic, "LOOKUP_S", 1.0)
    stores: list[Any] = [place.open_store(), Coroutines().store()]
    gate.opened.set()
    for store in stores:
        await store.put("key", b"superseded")
        for _ in range(generic._THREADS):
            await store._slots.acquire()
    removing = [asyncio.create_task(store.delete(["key"])) for store in stores]
    done, _ = await asyncio.wait(removing, timeout=1.2, return_when=asyncio.FIRST_COMPLETED)
    assert not done
    for store, removed in zip(stores, removing, strict=True):
        for _ in range(generic._THREADS):
            store._slots.release()
        await removed
        assert await store.list("") == []


@pytest.mark.parametrize("times", [1, 100])
async def test_an_object_that_is_put_again_while_it_is_read_is_read_again(
    tmp_path: Path, times: int
) -> None:
    """Its size was read before: a stretch of a journal grows while it is being read."""
    from fsspec.implementations.local import LocalFileSystem

    class Growing(LocalFileSystem):  # type: ignore[misc]
        cachable = False
        left = times

        def open(self, path: str, *args: Any, **kwargs: Any) -> Any:
            if self.left:
                self.left -= 1
                Path(path).write_bytes(Path(path).read_bytes() + b"more")
            return super().open(path, *args, **kwargs)

    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "key").write_bytes(b"begin")
    store = Location.resolve(str(tmp_path / "root"), Growing(), {}).open_store()
    if times == 1:
        assert await store.get("key", tmp_path / "here") == len(b"beginmore")
        assert (tmp_path / "here").read_bytes() == b"beginmore"
    else:
        with pytest.raises(StorageUnavailable, match="17 of 13 bytes arrived"):
            await store.get("key", tmp_path / "here")
        assert not (tmp_path / "here").exists()
    await store.close()
