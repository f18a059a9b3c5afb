"""The files of an experiment in storage: sent once, sent again if they change, removed with the
local ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.layout import is_checkpoint
from holdfast.syncer.artifacts import mirror as mirrors
from holdfast.syncer.artifacts import scan
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.artifacts.stored_index import LocalIndex
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.journal.journal import START
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim, ClaimLost
from holdfast.syncer.stores.store import PutResult, Store
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.answers import rows
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore, Place

pytestmark = pytest.mark.anyio

LISTING = "trial/.artifacts.json"
LONG_AGO_S = 10**9


def is_record(key: str) -> bool:
    return key in ("trial/stdout", "tuner.pkl")


class Machine:
    """A tree on one machine, and its uploader; `told` has its messages."""

    def __init__(self, root: Path, store: Store) -> None:
        self.root = root
        self.store = FaultyStore(store)
        self.told: list[list[Any]] = []
        (root / "journal").mkdir(parents=True, exist_ok=True)
        self.settings = UploaderSettings(
            root=root,
            storage=cast(Location, Place(self.store)),
            experiment_id="an experiment",
            journal="journal",
            head="head.json",
            is_record=is_record,
            is_checkpoint=is_checkpoint,
            artifacts=True,
            timeout_s=60.0,
        )

    def write(self, key: str, text: str = "") -> Path:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or key)
        return path

    async def open(self, **changes: Any) -> Uploader:
        uploader = Uploader(replace(self.settings, **changes), rows(self.told))
        await uploader.open()
        self.done()
        return uploader

    async def synced(self) -> Uploader:
        """A new uploader, after its first sync."""
        uploader = await self.open()
        await uploader.send_artifacts(None)
        return uploader

    def done(self) -> list[str]:
        """Puts and deletions since the last call, without the uploader's own files."""
        log = [f"{what} {key}" for what, key in self.store.log if what in ("put", "delete")]
        self.store.log.clear()
        return sorted(line for line in log if not line.endswith((LISTING, "/000001")))

    @property
    def warnings(self) -> list[str]:
        return [message[1] for message in self.told if message[0] == "warning"]


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def machine(tmp_path: Path, memory: MemoryStore) -> Machine:
    return Machine(tmp_path / "run", memory)


@pytest.fixture(autouse=True)
def _tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.01)


async def test_what_has_not_changed_is_sent_once(machine: Machine) -> None:
    for key in ("trial/a", "trial/deep/b", "trial/stdout", "tuner.pkl"):
        machine.write(key)
    uploader = await machine.synced()
    assert machine.done() == ["put trial/a", "put trial/deep/b"]
    machine.write("trial/a", "changed")
    await uploader.send_artifacts(None)
    assert machine.done() == ["put trial/a"]
    await uploader.send_artifacts(None)
    assert machine.done() == []


async def test_with_artifacts_off_no_file_of_the_user_leaves_the_machine(
    machine: Machine, memory: MemoryStore
) -> None:
    for key in ("mine", "trial/a", "trial/deep/stdout", "trial/stdout", "tuner.pkl"):
        machine.write(key)
    uploader = await machine.open(artifacts=False)
    await uploader.send_artifacts(None)
    await uploader.publish(START, 0)
    assert set(memory.objects) == {"head.json", ".epochs/000001", "trial/stdout", "tuner.pkl"}


async def test_after_a_restart_nothing_is_sent_again_also_where_only_the_times_have_changed(
    machine: Machine, memory: MemoryStore
) -> None:
    for name in "abc":
        machine.write(f"trial/{name}")
    machine.write("trial/stdout")
    uploader = await machine.synced()
    await uploader.publish(START, 0)
    for name in "ab":
        os.utime(machine.root / "trial" / name, (LONG_AGO_S, LONG_AGO_S))
    machine.write("trial/b", "trial/B")  # of the same length, with the same times
    os.utime(machine.root / "trial/b", (LONG_AGO_S, LONG_AGO_S))
    uploader = await machine.synced()
    assert machine.done() == ["put trial/b"]
    await uploader.publish(START, 0)
    assert "put trial/stdout" not in machine.done()


async def test_a_uploader_that_takes_the_place_of_one_that_died_sends_nothing_again(
    machine: Machine,
) -> None:
    machine.write("trial/a")
    await machine.synced()
    second = await machine.open(claimed=Claim(1))
    await second.send_artifacts(None)
    assert machine.done() == []


async def test_a_tree_that_was_copied_to_another_machine_sends_nothing_again(
    machine: Machine, memory: MemoryStore, tmp_path: Path
) -> None:
    machine.write("trial/a")
    await machine.synced()
    shutil.copytree(machine.root, tmp_path / "elsewhere")
    other = Machine(tmp_path / "elsewhere", memory)
    await other.synced()
    assert other.done() == []


async def test_after_another_machine_owned_the_storage_nothing_here_is_relied_on(
    machine: Machine, memory: MemoryStore, tmp_path: Path
) -> None:
    machine.write("trial/a")
    removed = machine.write("trial/removed")
    await machine.synced()
    other = Machine(tmp_path / "elsewhere", memory)
    other.write("trial/a", "TRIAL/A")
    await other.synced()
    removed.unlink()
    await machine.synced()
    assert machine.done() == ["put trial/a"]  # and nothing is removed
    assert memory.objects["trial/a"] == b"trial/a"


async def test_what_an_empty_storage_is_said_to_have_is_sent(machine: Machine) -> None:
    """The first claim there follows none: the one of the index was in another storage."""
    machine.write("trial/a")
    await machine.synced()
    emptied = Machine(machine.root, MemoryStore())
    await emptied.synced()
    assert emptied.done() == ["put trial/a"]


async def test_what_storage_has_lost_is_sent_again_after_a_restart(
    machine: Machine, memory: MemoryStore
) -> None:
    for name in "abc":
        machine.write(f"trial/{name}")
    await machine.synced()
    del memory.objects["trial/a"]
    memory.objects["trial/b"] = b"cut"
    await machine.synced()
    assert machine.done() == ["put trial/a", "put trial/b"]


async def test_a_damaged_index_costs_a_second_upload_and_removes_nothing(
    machine: Machine, memory: MemoryStore
) -> None:
    machine.write("trial/a")
    gone = machine.write("trial/gone")
    await machine.synced()
    index = machine.root / "trial" / ".stored.json"
    index.write_bytes(index.read_bytes().replace(b"gone", b"keep"))
    gone.unlink()
    await machine.synced()
    assert machine.done() == ["put trial/a"]
    assert "trial/gone" in memory.objects


async def test_what_the_user_removes_here_goes_there_at_the_next_sync(
    machine: Machine, memory: MemoryStore
) -> None:
    machine.write("trial/a")
    gone = machine.write("trial/samples/1")
    uploader = await machine.synced()
    gone.unlink()
    machine.done()
    await uploader.send_artifacts(["other"])  # not its turn
    assert machine.done() == []
    await uploader.send_artifacts(["trial"])
    assert machine.done() == ["delete trial/samples/1"]
    assert set(json.loads(memory.objects[LISTING])["files"]) == {"a"}


async def test_old_records_that_were_removed_here_go_there(machine: Machine) -> None:
    old = machine.write("trial/stdout")
    uploader = await machine.open()
    await uploader.publish(START, 0)
    old.unlink()
    machine.done()
    await uploader.send_artifacts(None)
    assert machine.done() == []
    await uploader.publish(START, 0)
    assert "delete trial/stdout" in machine.done()


@pytest.mark.parametrize("made_anew", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
async def test_nothing_goes_there_because_the_folder_here_was_lost(
    machine: Machine, memory: MemoryStore, made_anew: bool, restarted: bool
) -> None:
    """The projector creates a trial's folder again, with holdfast's records in it."""
    machine.write("trial/a")
    uploader = await machine.synced()
    shutil.rmtree(machine.root / "trial")
    if made_anew:
        machine.write("trial/stdout")
    if restarted:
        uploader = await machine.open()
    machine.done()
    for _ in range(2):
        await uploader.send_artifacts(None)
        await uploader.publish(START, 0)
    assert not any(line.startswith("delete") for line in machine.done())
    assert "trial/a" in memory.objects


async def test_where_the_index_cannot_be_written_nothing_is_removed_there(
    machine: Machine, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be determined whether the folder was lost meanwhile."""
    gone = machine.write("trial/a")
    machine.write("trial/b")
    uploader = await machine.open()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalIndex, "save", full)
    await uploader.send_artifacts(None)
    gone.unlink()
    await uploader.send_artifacts(None)
    assert machine.done() == ["put trial/a", "put trial/b"]
    monkeypatch.undo()
    await uploader.send_artifacts(None)
    await uploader.send_artifacts(None)
    assert "trial/b" in memory.objects


@pytest.mark.parametrize("removed", [True, False])
async def test_what_a_storage_only_says_to_have_kept_is_sent_until_it_is_there(
    machine: Machine, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    path = machine.write("trial/a")
    pretended = iter(range(3))
    real = FaultyStore.put

    async def put(self: FaultyStore, key: str, source: Any, **options: Any) -> PutResult:
        if key == "trial/a" and next(pretended, None) is not None:
            if removed:
                path.unlink()
            return PutResult(size=len(source))
        return await real(self, key, source, **options)

    monkeypatch.setattr(FaultyStore, "put", put)
    await machine.synced()
    assert ("trial/a" in memory.objects) is not removed


async def test_a_renamed_file_is_in_storage_all_the_time(machine: Machine) -> None:
    before = machine.write("trial/a")
    uploader = await machine.synced()
    before.rename(machine.root / "trial" / "b")
    machine.store.log.clear()
    await uploader.send_artifacts(None)
    steps = [step for step in machine.store.log if step[0] in ("put", "delete")]
    assert steps[:2] == [("put", "trial/b"), ("delete", "trial/a")]


async def test_files_and_folders_may_change_places_in_a_directory(
    tmp_path: Path,
) -> None:
    """A storage that has folders cannot hold a file and a folder of one name."""
    machine = Machine(tmp_path / "run", LocalStore(tmp_path / "there"))
    machine.write("trial/a")
    machine.write("trial/b/x")
    uploader = await machine.synced()
    (machine.root / "trial/a").unlink()
    shutil.rmtree(machine.root / "trial/b")
    machine.write("trial/a/x")
    machine.write("trial/b")
    await uploader.send_artifacts(None)
    there = tmp_path / "there" / "trial"
    assert (there / "a" / "x").read_text() == "trial/a/x"
    assert (there / "b").read_text() == "trial/b"


async def test_the_listing_has_the_checksums_of_the_artifacts(
    machine: Machine, memory: MemoryStore
) -> None:
    path = machine.write("trial/deep/a", "content")
    machine.write("trial/stdout")
    uploader = await machine.open()
    await uploader.publish(START, 0)
    await uploader.send_artifacts(None)
    listed = json.loads(memory.objects[LISTING])["files"]
    assert listed == {
        "deep/a": {
            "size": 7,
            "sha256": scan.checksum_of(path),
            "mtime_ns": path.stat().st_mtime_ns,
        }
    }
    machine.store.log.clear()
    await uploader.send_artifacts(None)
    assert ("put", LISTING) not in machine.store.log


async def test_an_unreadable_file_is_reported_once_and_everything_else_goes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed", "z"):
        machine.write(f"trial/{name}")
    real = os.open

    def refusing(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    uploader = await machine.open()
    for _ in range(3):
        await uploader.send_artifacts(None)
    assert machine.done() == ["put trial/a", "put trial/z"]
    why = "trial/closed: it cannot be read (permission denied)"
    assert machine.warnings == [f"not uploaded: {why}"]
    assert uploader.left_out == f"this file is not in storage as here: {why}"
    monkeypatch.undo()
    await uploader.send_artifacts(None)
    assert machine.done() == ["put trial/closed"]
    assert uploader.left_out == ""


async def test_a_file_that_the_storage_refuses_keeps_no_other_from_going(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        machine.write(f"trial/{number}")
    refused = {"trial/1", "trial/3"}
    real = FaultyStore.put

    async def put(self: FaultyStore, key: str, source: Any, **options: Any) -> PutResult:
        if key in refused:
            raise StorageRefused("put", key, "the key is too long")
        return await real(self, key, source, **options)

    monkeypatch.setattr(FaultyStore, "put", put)
    uploader = await machine.synced()
    assert machine.done() == ["put trial/0", "put trial/2", "put trial/4"]
    (told,) = machine.warnings
    assert "put trial/1: the key is too long" in told
    assert "these 2 files are not" in uploader.left_out
    refused.update(f"trial/more/{number}" for number in range(30))
    for key in refused:
        machine.write(key)
    with pytest.raises(StorageRefused):
        await uploader.send_artifacts(None)


async def test_a_file_that_is_being_overwritten_is_kept_back_and_sent_when_it_stands_still(
    machine: Machine, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = machine.write("trial/model", "the first whole state")
    uploader = await machine.synced()
    machine.write("trial/model", "the second whole state")
    real = os.pread

    def overwritten(descriptor: int, size: int, at: int) -> bytes:
        data = real(descriptor, size, at)
        path.write_bytes(os.urandom(22))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", overwritten)
        for number in range(1, 5):
            await uploader.send_artifacts(None)
            assert len(machine.warnings) == (number >= 3)
    assert memory.objects["trial/model"] == b"the first whole state"
    assert "held back until it stops changing" in uploader.left_out
    machine.write("trial/model", "the last whole state")
    await uploader.send_artifacts(None)
    assert memory.objects["trial/model"] == b"the last whole state"
    assert uploader.left_out == ""


async def test_a_large_file_that_changes_while_it_is_sent_is_sent_again_at_once(
    machine: Machine, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        mirrors,
        "read_stable",
        lambda path, copies: scan.read_stable(path, copies=copies, small_bytes=10),
    )
    path = machine.write("trial/model", "one " * 10)
    uploader = await machine.open()
    real = FaultyStore.put

    async def put(self: FaultyStore, key: str, source: Any, **options: Any) -> PutResult:
        stored = await real(self, key, source, **options)
        if isinstance(source, Path) and path.read_text().startswith("one"):
            path.write_text("two " * 10)
        return stored

    monkeypatch.setattr(FaultyStore, "put", put)
    await uploader.send_artifacts(None)
    assert machine.done() == ["put trial/model"] * 2
    assert memory.objects["trial/model"] == b"two " * 10
    assert json.loads(memory.objects[LISTING])["files"]["model"]["sha256"]


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.PRETEND])
async def test_each_operation_may_fail_once_and_everything_is_there_in_the_end(
    tmp_path: Path, fault: Fault
) -> None:
    async def run(root: Path, at: int) -> tuple[int, dict[str, bytes]]:
        memory = MemoryStore()
        machine = Machine(root, memory)
        machine.write("trial/a")
        gone = machine.write("trial/b")
        uploader = await machine.open()
        machine.store.disturb(at=at, fault=fault)
        await uploader.send_artifacts(None)
        gone.unlink()
        machine.write("trial/a", "more")
        await uploader.send_artifacts(None)
        times = {"mtime_ns": None}
        listed = json.loads(memory.objects.pop(LISTING))["files"]
        listing = {name: one | times for name, one in listed.items()}
        return len(machine.store.log), {**memory.objects, "listing": repr(listing).encode()}

    operations, expected = await run(tmp_path / "smooth", 0)
    assert expected.keys() == {".epochs/000001", "trial/a", "listing"}
    for at in range(1, operations + 1):
        assert (await run(tmp_path / str(at), at))[1] == expected, at


async def test_who_was_usurped_sends_and_removes_nothing_more(
    machine: Machine, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.syncer.stores.owned_store._LOOK_S", 0.0)
    gone = machine.write("trial/gone")
    uploader = await machine.synced()
    memory.objects[".epochs/000002"] = b"another's"
    gone.unlink()
    with pytest.raises(ClaimLost):
        await uploader.send_artifacts(None)
    machine.write("trial/a")
    with pytest.raises(ClaimLost):
        await uploader.send_artifacts(None)
    assert "trial/gone" in memory.objects
    assert "trial/a" not in memory.objects


async def test_so_many_are_under_way_at_once_and_how_far_it_is_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "_REPORT_EVERY_S", 0.0)
    for number in range(100):
        machine.write(f"trial/{number:02}")
    under_way, most = 0, 0
    real = FaultyStore.put

    async def put(self: FaultyStore, key: str, source: Any, **options: Any) -> PutResult:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await real(self, key, source, **options)

    monkeypatch.setattr(FaultyStore, "put", put)
    await machine.synced()
    assert 4 < most <= 16
    progress = [message for message in machine.told if message[0] == "progress"]
    assert progress[0][1:3] == [1, 100]
    assert progress[-2][1:] == [100, 100, 800, 800]
    assert progress[-1][1:] == [0, 0, 0, 0]


@pytest.fixture
def through_a_proxy(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, Store]]:
    """A folder of a real bucket, and the log of every request to it."""
    proxy = Proxy(moto.endpoint)
    bucket = Bucket(moto, tmp_path.name, proxy)
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    yield proxy, Location.resolve(bucket.storage_path, None, {}).open_store()
    proxy.close()


@pytest.mark.server
async def test_names_that_a_file_system_allows_go_to_a_bucket_and_come_back(
    through_a_proxy: tuple[Proxy, Store], tmp_path: Path
) -> None:
    _, store = through_a_proxy
    names = ["with space", "ünï/🙂", "-rf", "a\\b", "%2F?#&+", ".hidden/x", "x" * 250]
    machine = Machine(tmp_path / "run", store)
    for name in names:
        machine.write(f"trial/{name}")
    machine.write("trial/new\nline")  # for which this server answers 404
    uploader = await machine.synced()
    assert uploader.left_out.startswith(r"this file is not in storage as here: 'trial/new\nl")
    other = Machine(tmp_path / "elsewhere", store)
    second = await other.open()
    await second.download_artifacts("trial")
    assert {name: (other.root / "trial" / name).read_text() for name in names} == {
        name: f"trial/{name}" for name in names
    }
    await second.send_artifacts(None)
    assert other.done() == []
    for name in names:
        (other.root / "trial" / name).unlink()
    await second.send_artifacts(None)
    assert [entry.key for entry in await store.list("trial")] == [LISTING]
    await second.close()
