"""What cannot be interrupted is never overtaken."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast.syncer import store_arrow
from holdfast.syncer.errors import NotStored, StorageUnavailable
from holdfast.syncer.location import Location
from holdfast.syncer.patience import Patience

pytestmark = pytest.mark.anyio


class Gate:
    """Holds whoever comes while it is shut."""

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


def patience() -> Patience:
    return Patience(timeout_s=60, where="here", tell=lambda text: None)


async def test_a_put_that_was_given_up_does_not_come_after_a_newer_one(
    place: Location, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_arrow, "allowance_s", lambda size: 0.2)
    store = place.open_store()
    with pytest.raises(StorageUnavailable, match="no answer within the deadline"):
        await store.put("head.json", b"older")
    with pytest.raises(StorageUnavailable, match="may still come through"):
        await store.put("head.json", b"newer")
    gate.opened.set()
    await patience().until_done("put", lambda: store.put("head.json", b"newer"))
    assert await store.read("head.json") == b"newer"


async def test_a_removal_that_was_given_up_does_not_take_what_is_put_after_it(
    place: Location, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_arrow, "_LOOKUP_S", 0.2)
    store = place.open_store()
    gate.opened.set()
    await store.put("manifest", b"older")
    gate.opened.clear()
    with pytest.raises(StorageUnavailable, match="no answer within the deadline"):
        await store.delete(["manifest"])
    with pytest.raises(StorageUnavailable, match="may still come through"):
        await store.put("manifest", b"newer")
    gate.opened.set()
    await patience().until_done("put", lambda: store.put("manifest", b"newer"))
    assert await store.read("manifest") == b"newer"


class Coroutines:
    """Like s3fs: an asynchronous filesystem on a loop of its own, here over a dict."""

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

            async def _rm_file(self, path: str, **_: Any) -> None:
                del outer.objects[path]

            async def _info(self, path: str, **_: Any) -> dict[str, Any]:
                outer.looks.append(path)
                if path not in outer.objects:
                    raise FileNotFoundError(path)
                return {"name": path, "size": len(outer.objects[path]), "type": "file"}

        self.filesystem = Made(skip_instance_cache=True)

    def store(self) -> Any:
        wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(self.filesystem))
        return Location.resolve("bucket", wrapped, {}).open_store()


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


async def test_a_file_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotStored):
        await Coroutines().store().put("a", tmp_path / "gone")
