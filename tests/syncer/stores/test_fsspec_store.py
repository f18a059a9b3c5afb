"""A store that uses the coroutines of an fsspec filesystem, alone and in batches."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.upload import CommittedFiles, Upload
from holdfast.syncer.errors import AlreadyStored, NotStored, StorageUnavailable, innermost
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.stores import owned_store
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import ClaimLost, OwnedStore
from holdfast.syncer.stores.store import PutResult, PutsBatches
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.anyio

FOLDER = "trial/checkpoint_000000"


class Coroutines:
    """Like s3fs: an asynchronous filesystem with its own loop, here over a dict."""

    def __init__(self, *, tells_etags: bool = True, keeps: bool = True) -> None:
        from fsspec.asyn import AsyncFileSystem

        outer = self
        self.puts: list[str] = []
        self.looks: list[str] = []
        self.tasks: set[int] = set()
        self.objects: dict[str, bytes] = {}
        self.before_put: Callable[[str], None] = lambda path: None
        self.stalls_at = ""
        self.stalled = threading.Event()

        class Made(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
            protocol = "coroutines"
            cachable = False

            async def _pipe_file(self, path: str, value: bytes, **_: Any) -> Any:
                outer.before_put(path)
                outer.puts.append(path)
                outer.tasks.add(id(asyncio.current_task()))
                if path == outer.stalls_at:
                    outer.stalled.set()
                    await asyncio.Event().wait()
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


def files(folder: Path, count: int) -> dict[str, Path]:
    made = {f"{number:04}": folder / f"{number:04}" for number in range(count)}
    for name, path in made.items():
        path.write_bytes(f"the content of {name}".encode())
    return made


async def owned(store: Any) -> OwnedStore:
    made = OwnedStore(store, where="there", experiment_id="x", parallel=16)
    await made.claim()
    return made


async def upload(storage: OwnedStore, directory: Path) -> Upload:
    written = await asyncio.to_thread(manifest.write, directory)
    return Upload(
        storage=storage,
        committed=CommittedFiles(),
        directory=directory,
        folder=FOLDER,
        written=written,
    )


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


async def test_without_such_an_etag_the_object_is_looked_at(tmp_path: Path) -> None:
    there = Coroutines(tells_etags=False)
    await there.store().put("a", b"bytes")
    assert there.looks == ["bucket/a"]
    lying = Coroutines(tells_etags=False, keeps=False)
    with pytest.raises(StorageUnavailable, match="the store has no such object"):
        await lying.store().put("a", b"bytes")
    with pytest.raises(StorageUnavailable, match="the store has no such object"):
        await lying.store().put_batch(files(tmp_path, 2), for_s=60, stored=lambda *_: None)


async def test_a_file_that_is_gone_is_an_error_of_holdfast(tmp_path: Path) -> None:
    store = Coroutines().store()
    with pytest.raises(NotStored):
        await store.put("a", tmp_path / "gone")
    with pytest.raises(NotStored, match="gone"):
        await store.put_batch({"a": tmp_path / "gone"}, for_s=60, stored=lambda *_: None)


async def test_a_batch_is_one_call_and_each_file_is_confirmed(tmp_path: Path) -> None:
    there, heard = Coroutines(), dict[str, PutResult]()
    sources = files(tmp_path, 10)
    store: PutsBatches = there.store()
    await store.put_batch(sources, for_s=60, stored=heard.__setitem__)
    assert len(there.tasks) == 1
    assert list(heard) == list(sources)
    assert {path: len(data) for path, data in there.objects.items()} == {
        f"bucket/{key}": stored.size for key, stored in heard.items()
    }


async def test_a_batch_whose_time_is_over_begins_no_file_but_the_first(tmp_path: Path) -> None:
    there, heard = Coroutines(), dict[str, PutResult]()
    await there.store().put_batch(files(tmp_path, 3), for_s=0, stored=heard.__setitem__)
    assert list(heard) == ["0000"]
    assert there.puts == ["bucket/0000"]


async def test_a_file_that_is_refused_is_named_and_those_before_it_are_stored(
    tmp_path: Path,
) -> None:
    there, heard = Coroutines(), dict[str, PutResult]()

    def refuse(path: str) -> None:
        if path.endswith("0002"):
            raise OSError("no")

    there.before_put = refuse
    with pytest.raises(StorageUnavailable, match="bucket/0002") as raised:
        await there.store().put_batch(files(tmp_path, 4), for_s=60, stored=heard.__setitem__)
    assert "no" in raised.value.cause
    assert list(heard) == ["0000", "0001"]


async def test_after_a_batch_that_was_given_up_no_put_of_its_files_overtakes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Coroutines()
    store = there.store()
    there.stalls_at = "bucket/0001"
    ends: list[Callable[[], None]] = []
    put_each = store._put_each

    async def slow_to_end(
        contents: Any, for_s: float, answered: Any, ended: Any, create_only: bool
    ) -> None:
        ends.append(ended)
        await put_each(contents, for_s, answered, lambda: None, create_only)

    monkeypatch.setattr(store, "_put_each", slow_to_end)
    sources = files(tmp_path, 3)
    batch = asyncio.create_task(store.put_batch(sources, for_s=60, stored=lambda *_: None))
    await asyncio.to_thread(there.stalled.wait)
    batch.cancel()
    await asyncio.wait([batch])
    with pytest.raises(StorageUnavailable, match="may still take effect"):
        await store.put("0002", b"newer")
    with pytest.raises(StorageUnavailable, match="may still take effect"):
        await store.put_batch(sources, for_s=60, stored=lambda *_: None)
    ends[0]()
    monkeypatch.undo()
    await store.put("0002", b"newer")
    assert there.objects["bucket/0002"] == b"newer"


async def test_a_put_that_was_given_up_counts_until_its_driver_has_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever cancels it does not wait for the driver, which may still be in the request."""
    there = Coroutines()
    store = there.store()
    begun, may_end = threading.Event(), asyncio.Event()
    its_loop = there.filesystem.loop

    async def ends_slowly(path: str, value: bytes, **_: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
            there.objects[path] = value

    with monkeypatch.context() as patched:
        patched.setattr(there.filesystem, "_pipe_file", ends_slowly)
        older = asyncio.create_task(store.put("key", b"older"))
        await asyncio.to_thread(begun.wait)
    older.cancel()
    await asyncio.wait([older])
    with pytest.raises(StorageUnavailable, match="may still take effect"):
        await store.put("key", b"newer")
    its_loop.call_soon_threadsafe(may_end.set)
    while "key" in store._abandoned:  # turns of its loop
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), its_loop))
    await store.put("key", b"newer")
    assert there.objects["bucket/key"] == b"newer"


async def test_a_checkpoint_of_many_small_files_goes_in_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_store, "_LOOK_S", 3600.0)
    there = Coroutines()
    storage = await owned(there.store())
    files(tmp_path, 400)
    (tmp_path / "large").write_bytes(b"l" * (1 << 20))
    there.tasks.clear()
    there.puts.clear()
    await (await upload(storage, tmp_path)).perform()
    assert len(there.tasks) <= 400 / 16 + 2
    assert there.puts[-1] == f"bucket/{FOLDER}/{MANIFEST_NAME}"
    assert len(set(there.puts)) == 402
    await storage.close()


class Losing(dict[str, bytes]):
    """Objects of which one never exists, whatever the answer to its put was."""

    def __init__(self, loses: str) -> None:
        self.loses = loses

    def __setitem__(self, path: str, data: bytes) -> None:
        if path != self.loses:
            super().__setitem__(path, data)


async def test_a_file_that_storage_confirmed_and_does_not_have_keeps_the_manifest_away(
    tmp_path: Path,
) -> None:
    there = Coroutines()
    there.objects = kept = Losing(f"bucket/{FOLDER}/0017")
    storage = await owned(there.store())
    files(tmp_path, 40)
    work = await upload(storage, tmp_path)
    with pytest.raises(StorageUnavailable, match="does not have it"):
        await work.perform()
    assert f"bucket/{FOLDER}/{MANIFEST_NAME}" not in there.objects
    kept.loses = ""
    await work.perform()
    assert f"bucket/{FOLDER}/{MANIFEST_NAME}" in there.objects
    await storage.close()


async def test_whoever_is_usurped_while_batches_go_ends_before_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each file takes longer than a check is valid.
    monkeypatch.setattr(owned_store, "_LOOK_S", 0.0)
    there = Coroutines()
    storage = await owned(there.store())
    files(tmp_path, 400)
    work = await upload(storage, tmp_path)
    there.puts.clear()

    def usurp(path: str) -> None:
        there.objects["bucket/.epochs/000002"] = b"a newer one"

    there.before_put = usurp
    with pytest.raises((ClaimLost, ExceptionGroup)) as raised:
        await work.perform()
    assert isinstance(innermost(raised.value), ClaimLost)
    assert len(there.puts) <= 16
    await storage.close()


@pytest.mark.server
async def test_a_checkpoint_goes_in_batches_through_s3fs(tmp_path: Path, moto: S3Server) -> None:
    import s3fs

    filesystem = s3fs.S3FileSystem(
        key=moto.access_key, secret=moto.secret_key, endpoint_url=moto.endpoint
    )
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    location = Location.resolve(f"bucket/batches/{tmp_path.name}", wrapped, {})
    store = location.open_store()
    assert isinstance(store, PutsBatches)
    storage = await owned(store)
    sources = files(tmp_path, 60)
    (tmp_path / "empty").touch()
    work = await upload(storage, tmp_path)
    await work.perform()
    entries = {entry.name: entry.size for entry in await storage.list(FOLDER)}
    sizes = {name: fact.size for name, fact in work.written.files.items()}
    assert entries == {**sizes, MANIFEST_NAME: len(work.written.to_bytes())}
    assert sizes["empty"] == 0
    for name in ("0000", "0059"):
        assert await storage.read(f"{FOLDER}/{name}") == sources[name].read_bytes()
    await storage.close()


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
    assert isinstance(store, PutsBatches)
    sources = files(tmp_path, 2)
    await store.put("0001", b"of another run")
    with pytest.raises(AlreadyStored, match="0001"):
        await store.put_batch(sources, for_s=60, stored=lambda *_: None, create_only=True)
    assert await store.read("0001") == b"of another run"
    await store.close()


async def test_where_fsspec_has_no_puts_of_new_objects_the_store_looks_first() -> None:
    there = Coroutines()
    store = there.store()
    assert store.conditional_puts is False
    await store.put("a", b"first", create_only=True)
    with pytest.raises(AlreadyStored):
        await store.put("a", b"second", create_only=True)
    assert there.objects["bucket/a"] == b"first"
