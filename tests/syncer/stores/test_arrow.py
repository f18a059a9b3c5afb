"""What the store over a user's filesystem does beyond the contract of stores."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast.syncer.errors import AlreadyStored, StorageUnavailable
from holdfast.syncer.stores import generic
from holdfast.syncer.stores import retry as retries
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.retry import StorageRetry
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.anyio


class Coroutines:
    """Like s3fs: an asynchronous filesystem with its own loop, here over a dict."""

    def __init__(self, *, tells_etags: bool = True, keeps: bool = True) -> None:
        from fsspec.asyn import AsyncFileSystem

        outer = self
        self.puts: list[str] = []
        self.looks: list[str] = []
        self.objects: dict[str, bytes] = {}

        class Made(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
            protocol = "coroutines"
            cachable = False

            async def _pipe_file(self, path: str, value: bytes, **_: Any) -> Any:
                outer.puts.append(path)
                if keeps:
                    outer.objects[path] = value
                digest = hashlib.md5(value, usedforsecurity=False).hexdigest()
                return {"ETag": f'"{digest}"' if tells_etags else '"of-its-own"'}

            async def _cat_file(self, path: str, *_: Any, **__: Any) -> bytes:
                if path not in outer.objects:
                    raise FileNotFoundError(path)
                return outer.objects[path]

            async def _rm_file(self, path: str, **_: Any) -> None:
                del outer.objects[path]

            async def _info(self, path: str, **_: Any) -> dict[str, Any]:
                outer.looks.append(path)
                if path not in outer.objects:
                    raise FileNotFoundError(path)
                return {"name": path, "size": len(outer.objects[path]), "type": "file"}

            async def _find(self, path: str, **_: Any) -> dict[str, Any]:
                return {
                    name: {"name": name, "size": len(data), "type": "file"}
                    for name, data in dict(outer.objects).items()
                    if name.startswith(f"{path}/")
                }

            def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
                import io

                return io.BytesIO(outer.objects[path])

        self.filesystem = Made(skip_instance_cache=True)

    def store(self) -> Any:
        wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(self.filesystem))
        return Location.resolve("bucket", wrapped, {}).open_store()


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


async def test_small_objects_go_with_the_filesystems_own_put_and_its_etag_confirms_them(
    tmp_path: Path,
) -> None:
    there = Coroutines()
    store = there.store()
    (tmp_path / "file").write_bytes(b"of a file")
    (tmp_path / "middle").write_bytes(b"m" * (1 << 20))
    assert (await store.put("a", b"bytes")).size == 5
    assert (await store.put("b", tmp_path / "file")).size == 9
    assert (await store.put("c", tmp_path / "middle")).size == 1 << 20
    assert there.objects["bucket/b"] == b"of a file"
    assert (there.puts, there.looks) == (["bucket/a", "bucket/b", "bucket/c"], [])
    await store.delete(["a", "b"])
    assert list(there.objects) == ["bucket/c"]


async def test_without_such_an_etag_the_object_is_looked_at() -> None:
    there = Coroutines(tells_etags=False)
    await there.store().put("a", b"bytes")
    assert there.looks == ["bucket/a"]
    lying = Coroutines(tells_etags=False, keeps=False)
    with pytest.raises(StorageUnavailable, match="the store has no such object"):
        await lying.store().put("a", b"bytes")


@pytest.mark.server
async def test_of_two_puts_of_a_new_object_through_s3fs_one_wins(
    tmp_path: Path, moto: S3Server
) -> None:
    import s3fs

    filesystem = s3fs.S3FileSystem(
        key=moto.access_key, secret=moto.secret_key, endpoint_url=moto.endpoint
    )
    location = Location.resolve(f"bucket/once/{tmp_path.name}", filesystem, {})
    store = location.open_store()
    known = [store.conditional_puts]
    await store.put("first", b"bytes", create_only=True)
    assert [*known, store.conditional_puts] == [None, True]
    with pytest.raises(AlreadyStored):
        await store.put("first", b"other", create_only=True)
    won: list[bytes] = []

    async def put(data: bytes) -> None:
        with suppress(AlreadyStored):
            await location.open_store().put("raced", data, create_only=True)
            won.append(data)

    await asyncio.gather(*(put(b"%d" % number) for number in range(4)))
    assert won == [await store.read("raced")]
    await store.close()


async def test_where_fsspec_has_no_puts_of_new_objects_the_store_looks_first() -> None:
    there = Coroutines()
    store = there.store()
    assert store.conditional_puts is False
    await store.put("a", b"first", create_only=True)
    with pytest.raises(AlreadyStored):
        await store.put("a", b"second", create_only=True)
    assert there.objects["bucket/a"] == b"first"
