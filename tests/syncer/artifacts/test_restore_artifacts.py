"""Downloading the files that a trial wrote on another machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.journal.journal import START
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.store import ObjectInfo, PutResult, Store
from tests.rig.storage.answers import commit_of
from tests.rig.storage.stores import Fault, MemoryStore
from tests.syncer.artifacts.test_mirror import Machine as Mirrored

pytestmark = pytest.mark.anyio

LISTING = "trial/.artifacts.json"
RECORDS = {"trial/stdout", "trial/result.json"}


class Timed(MemoryStore):
    """A store that knows when its objects were put: at `now` of that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.put_at: dict[str, float] = {}

    async def put(self, key: str, source: bytes | Path, **how: bool) -> PutResult:
        self.put_at[key] = self.now
        return await super().put(key, source, **how)

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        found = await super().list(prefix, leftovers=leftovers)
        return [replace(entry, modified=self.put_at[entry.key]) for entry in found]


class Machine(Mirrored):
    """A machine whose trial has a file that the controller remakes, too."""

    def __init__(self, root: Path, store: Store) -> None:
        super().__init__(root, store)
        self.settings = replace(
            self.settings,
            is_record=lambda key: key in RECORDS,
            is_remade=lambda key: key == "trial/result.json",
            timeout_s=5.0,
        )

    @property
    def here(self) -> set[str]:
        files = (path for path in (self.root / "trial").rglob("*") if path.is_file())
        found = {path.relative_to(self.root / "trial").as_posix() for path in files}
        return found - {".stored.json"}


@pytest.fixture(autouse=True)
def _tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.01)


@pytest.fixture
def store() -> Timed:
    return Timed()


@pytest.fixture
async def first(tmp_path: Path, store: Timed) -> Machine:
    """The machine that has run the trial, and has everything in storage."""
    machine = Machine(tmp_path / "first", store)
    for name in ("log", "samples/1", "stdout", "result.json", "checkpoint_000001/model"):
        machine.write(f"trial/{name}")
    os.utime(machine.root / "trial" / "log", ns=(10**18, 10**18))
    uploader = await machine.open()
    await uploader.publish(START, 0)
    await uploader.commit(commit_of("t", 1, "trial/checkpoint_000001"))
    await uploader.send_artifacts(None)
    store.now = 2.0
    return machine


@pytest.fixture
def second(tmp_path: Path, first: Machine, store: Timed) -> Machine:
    return Machine(tmp_path / "second", store)


async def test_a_trial_finds_its_files_and_nothing_that_is_had_otherwise(second: Machine) -> None:
    uploader = await second.open()
    await uploader.download_artifacts("trial")
    assert second.here == {"log", "samples/1", "stdout"}
    log = second.root / "trial" / "log"
    assert log.read_text() == "trial/log"
    assert log.stat().st_mtime_ns == 10**18
    assert second.told == []


async def test_what_was_brought_is_not_sent_again_and_may_be_removed(
    second: Machine, store: Timed
) -> None:
    uploader = await second.open()
    await uploader.download_artifacts("trial")
    await uploader.send_artifacts(None)
    await uploader.publish(START, 0)
    sent = {key for key, at in store.put_at.items() if at == 2.0}
    assert sent == {".epochs/000002", "head.json"}
    (second.root / "trial" / "samples" / "1").unlink()
    await uploader.send_artifacts(None)
    assert "trial/samples/1" not in store.objects
    assert set(json.loads(store.objects[LISTING])["files"]) == {"log"}


async def test_what_is_here_stays_and_what_was_removed_here_does_not_come_back(
    first: Machine,
) -> None:
    (first.root / "trial" / "samples" / "1").unlink()
    first.write("trial/log", "further here")
    await (await first.open()).download_artifacts("trial")
    assert first.here == {"log", "stdout", "result.json"} | {
        "checkpoint_000001/model",
        "checkpoint_000001/.holdfast.json",
    }
    assert (first.root / "trial" / "log").read_text() == "further here"


async def test_a_file_with_other_bytes_than_were_sent_is_reported_and_not_brought(
    second: Machine, store: Timed
) -> None:
    store.objects["trial/log"] = b"trial/lag"
    uploader = await second.open()
    await uploader.download_artifacts("trial")
    assert second.here == {"samples/1", "stdout"}
    why = "trial/log: its bytes in storage differ from those that were sent"
    assert second.told == [["warning", f"not uploaded: {why}"]]


async def test_a_file_that_is_newer_than_the_listing_is_brought(
    second: Machine, store: Timed
) -> None:
    """The first machine was lost between the file and the listing."""
    await store.put("trial/log", b"a newer state")
    await store.put("trial/new", b"a new file")
    await (await second.open()).download_artifacts("trial")
    assert second.here == {"log", "new", "samples/1", "stdout"}
    assert (second.root / "trial" / "log").read_text() == "a newer state"


@pytest.mark.parametrize("listing", [None, b"no listing", b'{"format": 2}'])
async def test_without_a_listing_the_files_are_brought_all_the_same(
    second: Machine, store: Timed, listing: bytes | None
) -> None:
    del store.objects[LISTING]
    if listing is not None:
        store.objects[LISTING] = listing
    await (await second.open()).download_artifacts("trial")
    assert second.here == {"log", "samples/1", "stdout"}


async def test_names_from_the_network_stay_in_the_trials_folder(
    second: Machine, store: Timed, tmp_path: Path
) -> None:
    taken = ("trial/result.json/x", "trial/.stored.json/x")
    for key in ("trial/../escaped", "trial//double", "other/x", "trial/out/x", *taken):
        store.objects[key] = b"data"
        store.put_at[key] = 1.0
    outside = tmp_path / "outside"
    outside.mkdir()
    (second.root / "trial").mkdir()
    (second.root / "trial" / "out").symlink_to(outside)
    await (await second.open()).download_artifacts("trial")
    assert second.here == {"log", "samples/1", "stdout"}
    assert list(outside.iterdir()) == []
    assert second.told[0][1].endswith("(a link leads out of the trial's folder)")


async def test_a_download_that_breaks_off_leaves_no_half_a_file_and_resumes_later(
    second: Machine, store: Timed
) -> None:
    faulty = second.store
    uploader = await second.open(timeout_s=1)
    faulty.disturb(at=len(faulty.log) + 4, fault=Fault.FAIL, lasting=True)
    with pytest.raises(StorageUnavailable):
        await uploader.download_artifacts("trial")
    assert len(second.here) == 1
    assert not [name for name in second.here if name.startswith(".tmp-")]
    faulty.disturb(at=0, fault=Fault.FAIL)
    await uploader.download_artifacts("trial")
    assert second.here == {"log", "samples/1", "stdout"}


async def test_what_was_not_brought_stays_in_the_listing(second: Machine, store: Timed) -> None:
    second.write("trial/fresh")
    await (await second.open()).send_artifacts(None)
    assert set(json.loads(store.objects[LISTING])["files"]) == {"fresh", "log", "samples/1"}
