"""A storage that cannot be used is reported before trial 1: what was tried, and what answered."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.errors import (
    StorageBusy,
    StorageError,
    StorageRefused,
    StorageUnavailable,
)
from holdfast.syncer.stores import preflight as preflights
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.preflight import preflight, when_ready
from holdfast.syncer.stores.store import ObjectInfo, PutResult, Store
from tests.rig.storage.s3_server import S3Server
from tests.rig.storage.stores import FaultyStore, MemoryStore
from tests.syncer.conftest import Distant

pytestmark = pytest.mark.anyio


async def failure(location: Location, deadline_s: float = 10.0) -> StorageError:
    store = location.open_store()
    try:
        with pytest.raises(StorageError) as caught:
            await preflight(store, location.public, deadline_s=deadline_s)
    finally:
        await store.close()
    assert caught.value.where == location.public
    assert "secret/with" not in str(caught.value)
    return caught.value


@pytest.mark.server
async def test_a_good_place_passes_and_nothing_stays(
    moto: S3Server, rclone: S3Server, tmp_path: Path, distant: Distant
) -> None:
    places = [
        Location.resolve(moto.uri("bucket/preflight"), None, {}),
        Location.resolve(rclone.uri("bucket/preflight"), None, {}),
        Location.resolve(tmp_path / "new", None, {}),
        distant.location,
    ]
    for location in places:
        store = location.open_store()
        await preflight(store, location.public)
        assert await store.list() == []
        await store.close()
    assert [os.listdir(folder) for folder in (tmp_path / "new", distant.folder)] == [[], []]


@pytest.mark.server
@pytest.mark.parametrize("through_pyarrow", [False, True])
async def test_a_missing_bucket_is_reported(moto: S3Server, through_pyarrow: bool) -> None:
    location = Location.resolve(moto.uri("no-such-bucket/x"), None, {})
    if through_pyarrow:
        filesystem, path = location.arrow()
        location = Location.resolve(path, filesystem, {})
    error = await failure(location)
    assert isinstance(error, StorageRefused)
    assert error.operation == "write to"
    assert "bucket" in error.cause
    assert "Create the bucket" in error.advice


@pytest.mark.server
@pytest.mark.parametrize("through_pyarrow", [False, True])
async def test_a_wrong_secret_is_reported(rclone: S3Server, through_pyarrow: bool) -> None:
    location = Location.resolve(rclone.uri("bucket/x", secret_key="wrong"), None, {})
    if through_pyarrow:
        filesystem, path = location.arrow()
        location = Location.resolve(path, filesystem, {})
    error = await failure(location)
    assert isinstance(error, StorageRefused)
    assert "Check" in error.advice
    assert "credentials" in error.advice or "secret_key" in error.advice


@pytest.mark.server
async def test_a_bucket_may_be_created_on_demand(moto: S3Server) -> None:
    location = Location.resolve(moto.uri("made-now/x") + "&allow_bucket_creation=true", None, {})
    store = location.open_store()
    await preflight(store, location.public)
    await store.close()


async def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    location = Location.resolve("s3://bucket/x?endpoint_override=http://127.0.0.1:1", None, {})
    error = await failure(location)
    assert isinstance(error, StorageRefused)
    assert "AWS_ACCESS_KEY_ID" in error.advice


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_an_endpoint_where_no_one_listens_is_reported() -> None:
    uri = "s3://bucket/x?access_key=key1&secret_key=secret/with&endpoint_override="
    error = await failure(Location.resolve(f"{uri}http://127.0.0.1:{unused_port()}", None, {}))
    assert isinstance(error, StorageUnavailable)
    assert "Could not connect" in error.cause
    assert "endpoint_override" in error.advice


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


async def test_a_server_that_never_answers_is_given_up(silent_port: int) -> None:
    uri = "s3://bucket/x?access_key=key1&secret_key=secret/with&endpoint_override="
    location = Location.resolve(f"{uri}http://127.0.0.1:{silent_port}", None, {})
    error = await failure(location, deadline_s=0.3)
    assert isinstance(error, StorageUnavailable)
    assert error.cause == "no answer within 0.3 s"


async def test_a_local_path_that_cannot_be_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    error = await failure(Location.resolve(tmp_path / "file" / "results", None, {}))
    assert error.operation == "write to"
    assert "Not a directory" in error.cause
    assert "storage_path" in error.advice


@pytest.mark.parametrize(
    ("at", "operation"), [(1, "write to"), (2, "read from"), (3, "list"), (4, "delete from")]
)
async def test_the_operation_that_failed_is_named_and_nothing_stays(
    at: int, operation: str
) -> None:
    inner = MemoryStore()
    refusal = StorageRefused("x", "y", "AccessDenied")
    with pytest.raises(StorageRefused, match="AccessDenied") as caught:
        await preflight(FaultyStore(inner, at=at, error=refusal), "here")
    assert caught.value.operation == operation
    assert inner.objects == {}


async def test_a_store_that_forgets_or_garbles_is_found_out() -> None:
    class Forgetful(MemoryStore):
        async def list(self, prefix: str = "", *, leftovers: bool = False) -> Any:
            return []

    class Garbling(MemoryStore):
        async def read(self, key: str) -> bytes:
            return b"something else"

    stores: list[tuple[Store, str]] = [(Forgetful(), "listing"), (Garbling(), "written bytes")]
    for store, told in stores:
        with pytest.raises(StorageUnavailable, match=told):
            await preflight(store, "here")


async def test_a_slow_store_that_answers_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes three quarters of the deadline."""
    loop = asyncio.get_running_loop()
    past = [0.0]
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + past[0])

    class Slow(MemoryStore):
        async def put(self, *args: Any, **options: Any) -> PutResult:
            await self._pass_time()
            return await super().put(*args, **options)

        async def read(self, key: str) -> bytes:
            await self._pass_time()
            return await super().read(key)

        async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
            await self._pass_time()
            return await super().list(prefix, leftovers=leftovers)

        async def delete(self, keys: Iterable[str]) -> None:
            await self._pass_time()
            await super().delete(keys)

        async def _pass_time(self) -> None:
            past[0] += 300
            await asyncio.sleep(0)  # the loop looks at its timers

    await preflight(Slow(), "here", deadline_s=400)


async def test_what_killed_runs_left_goes_and_what_may_be_in_use_stays(tmp_path: Path) -> None:
    store = Location.resolve(tmp_path, None, {}).open_store()
    folder = tmp_path / ".holdfast-preflight"
    folder.mkdir()
    hour_s, now_s = 3600, time.time()
    for name, age_s in [("killed", 2 * hour_s), (".tmp-0123456789abcdef", 2 * hour_s), ("now", 9)]:
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (now_s - age_s, now_s - age_s))
    await preflight(store, "here")
    assert os.listdir(folder) == ["now"]


async def test_preflights_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = Location.resolve(tmp_path, None, {}).open_store()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(preflight(store, "here"))
    assert os.listdir(tmp_path) == []


class Busy(MemoryStore):
    """Answers this many puts with 503 first."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.left = answers

    async def put(self, key: str, source: bytes | Path, **how: Any) -> PutResult:
        if self.left:
            self.left -= 1
            raise StorageBusy("put", key, "503 Slow Down")
        return await super().put(key, source, **how)


def test_a_storage_that_cannot_now_is_waited_for_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflights, "_FIRST_PAUSE_S", 0.001)
    told: list[str] = []
    store, where = Busy(5), "s3://bucket"
    when_ready(lambda: asyncio.run(preflight(store, where)), where, timeout_s=60, tell=told.append)
    assert told == ["cannot write to s3://bucket: 503 Slow Down. Waiting for it, 60 s at most"]
    assert store.objects == {}


def test_the_wait_for_a_storage_that_cannot_now_has_an_end() -> None:
    store, where = Busy(5), "s3://bucket"
    with pytest.raises(StorageBusy, match="503 Slow Down"):
        when_ready(lambda: asyncio.run(preflight(store, where)), where, timeout_s=0, tell=print)
