"""Which bytes are sent to storage and which are not, counted at a proxy before a real server."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.layout import is_checkpoint
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint.upload import Upload
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import ClaimLost
from holdfast.syncer.stores.s3.store import S3Store
from holdfast.syncer.stores.s3.upload import Multipart
from holdfast.syncer.stores.store import PutResult, Store
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.faults.ills import Ill
from tests.rig.storage.answers import commit_of, rows
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server, open_client

pytestmark = [pytest.mark.anyio, pytest.mark.server]

MIB = 1 << 20
FIRST, SECOND = "trial/checkpoint_000000", "trial/checkpoint_000001"
_number = itertools.count()


class Place:
    """A location that records the stores it opened: a test closes those that a crash would."""

    def __init__(self, location: Location) -> None:
        self.public = location.public
        self.local_path = location.local_path
        self._location = location
        self._opened: list[Store] = []

    def open_store(self) -> Store:
        self._opened.append(self._location.open_store())
        return self._opened[-1]

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class Experiment:
    """An experiment's directory, and a bucket behind a proxy."""

    def __init__(self, root: Path, moto: S3Server) -> None:
        self.root = root
        self.prefix = f"uploads/{next(_number)}"
        self.proxy = Proxy(moto.endpoint)
        self.options = Location.resolve(moto.uri("bucket"), None, {}).base.options
        uri = moto.uri(f"bucket/{self.prefix}").replace(moto.endpoint, self.proxy.endpoint)
        self.place = Place(Location.resolve(uri, None, {}))
        self.storage = cast(Location, self.place)
        self.told: list[list[Any]] = []

    def stage(self, folder: str, **files: bytes) -> None:
        for name, data in files.items():
            path = self.root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    async def opened(self, storage: Location | None = None) -> Uploader:
        """A new incarnation, which owns the storage."""
        settings = UploaderSettings(
            root=self.root,
            storage=storage or self.storage,
            experiment_id="x",
            journal="journal",
            head="head.json",
            is_record=str.isidentifier,
            is_checkpoint=is_checkpoint,
        )
        uploader = Uploader(settings, rows(self.told))
        await uploader.open()
        return uploader

    async def commit(self, *folders: str) -> int:
        """Commit in one new incarnation; returns the number of bytes sent."""
        uploader = await self.opened()
        before = self.proxy.received
        for folder in folders:
            await uploader.commit(commit_of("t", 0, folder))
        await uploader.close()
        return self.proxy.received - before

    async def content(self, folder: str) -> dict[str, bytes]:
        """The files of a checkpoint in the bucket, without its manifest."""
        store = self.storage.open_store()
        entries = [e for e in await store.list(folder) if not e.name.startswith(".")]
        found = {e.key.removeprefix(f"{folder}/"): await store.read(e.key) for e in entries}
        await store.close()
        return found

    async def unfinished(self) -> list[str]:
        """The keys of uploads that are neither completed nor aborted."""
        async with open_client(self.options) as s3:
            found = await s3.list_multipart_uploads(Bucket="bucket", Prefix=f"{self.prefix}/")
        return [
            upload["Key"].removeprefix(f"{self.prefix}/") for upload in found.get("Uploads", [])
        ]

    def parts(self, since: int = 0) -> list[str]:
        """The numbers of the parts that were put, in order, from the `since`-th request on."""
        puts = [line for line in self.proxy.log[since:] if line.startswith("PUT")]
        found = [line.partition("partNumber=")[2].partition("&")[0] for line in puts]
        return sorted(number for number in found if number)

    async def cut(self, monkeypatch: pytest.MonkeyPatch, kind: type, step: str) -> None:
        """Commit the first checkpoint, and die when the upload reaches this step."""
        reached = asyncio.Event()

        async def stall(*_: Any, **__: Any) -> None:
            reached.set()
            await asyncio.Event().wait()

        uploader = await self.opened()
        with monkeypatch.context() as patched:
            patched.setattr(kind, step, stall)
            task = asyncio.create_task(uploader.commit(commit_of("t", 0, FIRST)))
            await reached.wait()
            task.cancel()
            await asyncio.wait([task])
        await self.place.close()


@pytest.fixture
def experiment(tmp_path: Path, moto: S3Server) -> Iterator[Experiment]:
    made = Experiment(tmp_path / "run", moto)
    yield made
    made.proxy.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.01)


@pytest.mark.parametrize("size", [4096, 20 * MIB])
async def test_an_unchanged_file_does_not_travel_again(experiment: Experiment, size: int) -> None:
    same, changed = os.urandom(size), os.urandom(3000)
    experiment.stage(FIRST, same=same, step=b"0" * 3000)
    experiment.stage(SECOND, renamed=same, same=same, step=changed)
    await experiment.commit(FIRST)
    travelled = await experiment.commit(SECOND)
    assert travelled < 3000 + 1500  # the manifest and the requests next to it
    assert await experiment.content(SECOND) == {"renamed": same, "same": same, "step": changed}


async def test_a_source_that_was_removed_meanwhile_is_replaced_by_an_upload(
    experiment: Experiment,
) -> None:
    experiment.stage(FIRST, model=b"a" * 50_000)
    experiment.stage(SECOND, model=b"a" * 50_000)
    uploader = await experiment.opened()
    await uploader.commit(commit_of("t", 0, FIRST))
    store = experiment.storage.open_store()
    await store.delete([f"{FIRST}/model"])
    await store.close()
    before = experiment.proxy.received
    await uploader.commit(commit_of("t", 1, SECOND))
    await uploader.close()
    assert experiment.proxy.received - before > 50_000
    assert await experiment.content(SECOND) == {"model": b"a" * 50_000}


async def test_a_source_with_other_bytes_than_were_committed_is_not_copied(
    experiment: Experiment,
) -> None:
    experiment.stage(FIRST, model=b"a" * 50_000)
    experiment.stage(SECOND, model=b"a" * 50_000)
    uploader = await experiment.opened()
    await uploader.commit(commit_of("t", 0, FIRST))
    store = experiment.storage.open_store()
    await store.put(f"{FIRST}/model", b"z" * 50_000)
    await store.close()
    await uploader.commit(commit_of("t", 1, SECOND))
    await uploader.close()
    assert await experiment.content(SECOND) == {"model": b"a" * 50_000}


async def test_a_server_that_refuses_copies_gets_the_bytes(experiment: Experiment) -> None:
    experiment.stage(FIRST, model=b"a" * 50_000)
    experiment.stage(SECOND, model=b"a" * 50_000)
    uploader = await experiment.opened()
    await uploader.commit(commit_of("t", 0, FIRST))
    proxy = experiment.proxy
    # The listings and checks before the copy, which is requested twice: directly, and by botocore.
    proxy.strike_copies(Ill.FORBIDDEN)
    before = proxy.received
    await uploader.commit(commit_of("t", 1, SECOND))
    await uploader.close()
    assert proxy.struck
    assert proxy.received - before > 50_000
    assert await experiment.content(SECOND) == {"model": b"a" * 50_000}


@pytest.mark.parametrize(
    ("server_name", "further"), [("moto", []), ("rclone", ["GET of the claims"])]
)
async def test_a_checkpoint_of_one_file_takes_only_the_requests_that_prove_something(
    server_name: str, further: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Without conditional puts, the claim is checked before the listing that the manifest
    follows."""
    experiment = Experiment(tmp_path / "run", request.getfixturevalue(server_name))
    experiment.stage(FIRST, model=b"first")
    experiment.stage(SECOND, model=b"second")
    uploader = await experiment.opened()
    await uploader.commit(commit_of("t", 0, FIRST))
    since = len(experiment.proxy.log)
    await uploader.commit(commit_of("t", 1, SECOND))
    asked = [named(line) for line in experiment.proxy.log[since:]]
    await uploader.close()
    experiment.proxy.close()
    assert asked == [
        "PUT of model",
        *further,
        "GET of the folder",
        "PUT of the manifest",
        "GET of the manifest",
    ]


def named(line: str) -> str:
    """A request by what it is about."""
    method, path = line.split(" ", 1)
    if "prefix=" in path:
        return f"{method} of the {'claims' if '.epochs' in path else 'folder'}"
    return f"{method} of {'the manifest' if path.endswith('.holdfast.json') else 'model'}"


async def test_files_that_arrived_before_a_crash_are_not_sent_again(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"part{number}": os.urandom(40_000) for number in range(5)}
    experiment.stage(FIRST, **files)
    await experiment.cut(monkeypatch, Upload, "_put_marker")
    assert await experiment.commit(FIRST) < 5_000
    assert await experiment.content(FIRST) == files


async def test_files_of_another_attempt_that_arrived_before_a_crash_are_replaced(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = os.urandom(40_000)
    experiment.stage(FIRST, same=same, model=b"a" * 40_000, old=b"old")
    await experiment.cut(monkeypatch, Upload, "_put_marker")
    shutil.rmtree(experiment.root / FIRST)
    experiment.stage(FIRST, same=same, model=b"b" * 40_000)
    travelled = await experiment.commit(FIRST)
    assert 40_000 < travelled < 45_000
    assert await experiment.content(FIRST) == {"same": same, "model": b"b" * 40_000}


async def test_the_parts_of_a_large_file_that_arrived_before_a_crash_are_not_sent_again(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = os.urandom(20 * MIB + 5)
    experiment.stage(FIRST, large=large)
    await experiment.cut(monkeypatch, Multipart, "_complete")
    assert experiment.parts() == ["1", "2", "3"]
    assert await experiment.unfinished() == [f"{FIRST}/large"]
    since = len(experiment.proxy.log)
    await experiment.commit(FIRST)
    assert experiment.parts(since) == []
    assert await experiment.content(FIRST) == {"large": large}
    assert await experiment.unfinished() == []


async def test_a_part_of_another_attempt_does_not_get_into_the_file(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = bytearray(os.urandom(20 * MIB))
    experiment.stage(FIRST, large=bytes(large))
    await experiment.cut(monkeypatch, Multipart, "_complete")
    large[9 * MIB] ^= 1
    experiment.stage(FIRST, large=bytes(large))
    since = len(experiment.proxy.log)
    await experiment.commit(FIRST)
    assert experiment.parts(since) == ["2"]
    assert await experiment.content(FIRST) == {"large": bytes(large)}


async def test_an_upload_that_no_one_resumes_does_not_stay(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.stage(FIRST, large=os.urandom(17 * MIB), model=b"1")
    await experiment.cut(monkeypatch, Multipart, "_complete")
    assert await experiment.unfinished() == [f"{FIRST}/large"]
    (experiment.root / FIRST / "large").unlink()
    uploader = await experiment.opened()
    await uploader.commit(commit_of("t", 0, FIRST))
    assert await experiment.unfinished() == []
    await uploader.close()


async def test_an_upload_of_a_checkpoint_that_is_not_wanted_any_more_does_not_stay(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.stage(FIRST, large=os.urandom(17 * MIB))
    await experiment.cut(monkeypatch, Multipart, "_complete")
    await experiment.commit()
    assert await experiment.unfinished() == []


async def test_a_put_that_was_held_up_replaces_no_file_of_a_newer_incarnation(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Frozen after it has checked the owner, and continued when the newer one is done."""
    reached, thawed = asyncio.Event(), asyncio.Event()
    put = S3Store.put

    async def hold(store: S3Store, key: str, source: Any, **asked: Any) -> PutResult:
        if key == f"{FIRST}/model" and not reached.is_set():
            reached.set()
            await thawed.wait()
        return await put(store, key, source, **asked)

    monkeypatch.setattr(S3Store, "put", hold)
    experiment.stage(FIRST, model=b"old")
    older = await experiment.opened()
    late = asyncio.create_task(older.commit(commit_of("t", 0, FIRST)))
    await reached.wait()
    experiment.root = tmp_path / "another machine"
    experiment.stage(FIRST, model=b"new")
    await experiment.commit(FIRST)
    thawed.set()
    with pytest.raises(ClaimLost):
        await late
    await older.close()
    assert await experiment.content(FIRST) == {"model": b"new"}


async def test_a_put_of_an_older_incarnation_that_comes_between_is_replaced(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the newer one has listed the objects, and before it puts."""
    store = experiment.storage.open_store()
    late = [f"{FIRST}/model"]

    async def be_late(*_: Any) -> bool:
        while late:
            await store.put(late.pop(), b"old")
        return False

    monkeypatch.setattr(Upload, "_try_to_copy", be_late)
    experiment.stage(FIRST, model=b"new")
    uploader = await experiment.opened()
    await uploader.commit(commit_of("t", 0, FIRST))
    await uploader.close()
    await store.close()
    assert await experiment.content(FIRST) == {"model": b"new"}


async def test_within_a_run_what_was_interrupted_continues(experiment: Experiment) -> None:
    """The completion is refused for a while; the parts stay."""
    large = os.urandom(17 * MIB)
    experiment.stage(FIRST, large=large)
    uploader = await experiment.opened()
    experiment.proxy.strike_completions(Ill.SLOW_DOWN, times=3)  # as often as botocore tries
    await uploader.commit(commit_of("t", 0, FIRST))
    await uploader.close()
    assert len(experiment.proxy.struck) == 3
    assert experiment.parts() == ["1", "2", "3"]
    assert await experiment.content(FIRST) == {"large": large}


async def test_in_a_directory_an_unchanged_file_is_copied_there(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    copy: Callable[..., Any] = LocalStore.copy

    async def note(store: LocalStore, source: Any, key: str) -> Any:
        copied.append(key)
        return await copy(store, source, key)

    monkeypatch.setattr(LocalStore, "copy", note)
    there = Location.resolve(tmp_path / "there", None, {})
    experiment.stage(FIRST, model=b"weights")
    experiment.stage(SECOND, model=b"weights", step=b"1")
    uploader = await experiment.opened(there)
    await uploader.commit(commit_of("t", 0, FIRST))
    await uploader.commit(commit_of("t", 1, SECOND))
    await uploader.close()
    assert copied == [f"{SECOND}/model"]
    assert (tmp_path / "there" / SECOND / "model").read_bytes() == b"weights"
    (tmp_path / "there" / FIRST / "model").write_bytes(b"changed")
    assert (tmp_path / "there" / SECOND / "model").read_bytes() == b"weights"
