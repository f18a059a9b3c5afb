"""The cost of a publication, and what a reader finds when it is interrupted anywhere."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from holdfast.experiment.records.opened import fetch_journal, refresh_journal
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.errors import StorageError, StorageRefused
from holdfast.syncer.journal.journal import Journal, Position, read
from holdfast.syncer.journal.stretches import parse_head, stretches_of
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo, Store
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore, Place

pytestmark = pytest.mark.anyio
RECORD = b"a row of some bytes " * 20


class Run:
    """An experiment's journal here, and a uploader that publishes it there."""

    def __init__(self, root: Path, *, segment_bytes: int = 1 << 24) -> None:
        self.root = root
        self.journal = Journal(root / "journal", segment_bytes=segment_bytes)
        self.records = 0

    async def uploader(self, store: Store) -> Uploader:
        settings = UploaderSettings(
            root=self.root,
            storage=cast(Location, Place(store)),
            experiment_id="an experiment",
            journal="journal",
            head="head.json",
            is_record=lambda key: False,
            is_checkpoint=lambda name: False,
            private=("journal",),
            timeout_s=60,
        )
        uploader = Uploader(settings, lambda message: None)
        await uploader.open()
        return uploader

    def grow(self, records: int = 1) -> Position:
        for _ in range(records):
            self.journal.append([b"%06d " % self.records + RECORD])
            self.records += 1
        return self.journal.position


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.001)


async def records_in(store: Store, folder: Path) -> list[int]:
    """The numbers of the records that a reader finds there."""
    if not await fetch_journal(store, folder):
        return []
    return [int(payload[:6]) for payload, _ in read(folder)]


def journal_of(memory: MemoryStore) -> set[str]:
    return {key for key in memory.objects if key.startswith("journal/")}


async def test_a_publication_costs_the_same_however_many_there_were_before(run: Run) -> None:
    store = FaultyStore(MemoryStore())
    uploader = await run.uploader(store)
    costs, sent = {}, {}
    for number in range(1, 300):
        before = len(store.log)
        end = run.grow()
        await uploader.publish(end, 0)
        await uploader.remove_stored([])
        done = Counter(what for what, _ in store.log[before:])
        costs[number] = (done["put"], done["head"], done["list"], done["read"])
        sent[number] = len(cast(MemoryStore, store.inner).objects["head.json"])
    assert {costs[number] for number in costs} <= {(2, 1, 1, 1), (2, 1, 2, 1), (2, 1, 3, 1)}
    assert max(sent.values()) < 2_000
    assert len(journal_of(cast(MemoryStore, store.inner))) <= 12


async def test_a_byte_travels_a_few_times_and_not_with_each_publication(run: Run) -> None:
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    travelled, names = 0, dict[str, bytes]()
    for _ in range(256):
        await uploader.publish(run.grow(), 0)
        new = {key: data for key, data in memory.objects.items() if key.startswith("journal/")}
        travelled += sum(len(data) for key, data in new.items() if names.get(key) != data)
        names = new
    assert travelled < 11 * run.journal.position.offset


async def test_a_segment_that_is_complete_becomes_one_object(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", segment_bytes=10_000)
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    while run.journal.position.segment < 3:
        await uploader.publish(run.grow(), 0)
        await uploader.remove_stored([])
    await uploader.publish(run.grow(), 0)
    await uploader.remove_stored([])
    whole = {f"journal/{number:06d}.log" for number in range(3)}
    assert {key for key in journal_of(memory) if key < "journal/000003"} == whole
    for key in whole:
        assert memory.objects[key] == (run.root / key).read_bytes()
    assert await records_in(memory, tmp_path / "there") == [*range(run.records)]


async def test_a_reader_that_follows_keeps_only_what_the_newest_head_names(
    run: Run, tmp_path: Path
) -> None:
    """Stretches are merged meanwhile: an older one would be read in place of the longer one."""
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    folder, known = tmp_path / "there", dict[str, tuple[int, int | None]]()
    folder.mkdir()
    for _ in range(20):
        await uploader.publish(run.grow(), 0)
        await uploader.remove_stored([])
        assert await refresh_journal(memory, folder, known)
        named = stretches_of(parse_head(memory.objects["head.json"]))
        assert sorted(path.name for path in folder.iterdir()) == sorted(s.name for s in named)
        assert [int(payload[:6]) for payload, _ in read(folder)] == [*range(run.records)]


async def test_cut_off_at_any_operation_a_reader_finds_this_set_or_the_one_before(
    tmp_path: Path,
) -> None:
    """Publications with joins, and a segment that becomes complete in between."""

    async def publish_all(run: Run, store: Store) -> list[int]:
        uploader, published = await run.uploader(store), list[int]()
        for records in (3, 1, 4, 12, 1):
            await uploader.publish(run.grow(records), 0)
            await uploader.remove_stored([])
            published.append(run.records)
        return published

    smooth = FaultyStore(MemoryStore())
    published = await publish_all(Run(tmp_path / "smooth", segment_bytes=5_000), smooth)
    assert any("+" in key for what, key in smooth.log if what == "delete")
    for at in range(3, smooth.operations + 1):
        memory = MemoryStore()
        cut = StorageRefused("put", "faulty", "cut off")
        store = FaultyStore(memory, at=at, fault=Fault.FAIL, error=cut, lasting=True)
        run = Run(tmp_path / f"cut-{at}", segment_bytes=5_000)
        with suppress(StorageError):  # a failed removal is not an error
            await publish_all(run, store)
        found = await records_in(memory, tmp_path / f"there-{at}")
        assert found == [*range(len(found))]
        assert len(found) in (0, *published)
        # The next incarnation continues from there, and removes what is left over.
        uploader = await run.uploader(memory)
        await uploader.publish(run.grow(), 0)
        await uploader.remove_stored([])
        assert await records_in(memory, tmp_path / f"there-{at}") == [*range(run.records)]
        named = {part["name"] for part in json.loads(memory.objects["head.json"])["segments"]}
        assert journal_of(memory) == {f"journal/{name}" for name in named}


async def test_who_has_read_the_head_before_finds_what_it_names_after_a_join(run: Run) -> None:
    """A longer stretch starts with the bytes of the one whose name it takes."""
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    await uploader.publish(run.grow(4), 0)
    older = stretches_of(parse_head(memory.objects["head.json"]))
    await uploader.publish(run.grow(40), 0)
    newer = stretches_of(parse_head(memory.objects["head.json"]))
    assert [one.name for one in older] == [one.name for one in newer]
    (before,) = older
    assert len(memory.objects["journal/000000.log"]) > before.size
    assert before.is_of(memory.objects["journal/000000.log"])


async def test_a_reader_whose_stretches_went_meanwhile_takes_the_newer_head(
    run: Run, tmp_path: Path
) -> None:
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    await uploader.publish(run.grow(8), 0)
    await uploader.publish(run.grow(1), 0)
    assert len(journal_of(memory)) == 2

    class Overtaken(FaultyStore):
        async def get(self, key: str, target: Path) -> int:
            if "+" in key and key in memory.objects:
                await uploader.publish(run.grow(20), 0)
                await uploader.remove_stored([])
            return await super().get(key, target)

    assert await records_in(Overtaken(memory), tmp_path / "there") == [*range(29)]


async def test_a_head_that_is_too_large_is_not_read_and_keeps_the_run_from_the_storage(
    run: Run,
) -> None:
    class HugeHead(MemoryStore):
        async def head(self, key: str) -> ObjectInfo | None:
            return ObjectInfo(key=key, size=3 << 30)

        async def read(self, key: str) -> bytes:
            raise AssertionError(f"{key} is read")

    with pytest.raises(StorageRefused, match=r"head\.json: it has 3,221,225,472 bytes"):
        await run.uploader(HugeHead())


async def test_bytes_that_went_bad_here_do_not_replace_those_in_storage(
    run: Run, tmp_path: Path
) -> None:
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    await uploader.publish(run.grow(4), 0)
    good = memory.objects["journal/000000.log"]
    path = run.root / "journal" / "000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with path.open("ab") as file:
        file.write(b"more bytes, which are to be published" * 100)
    await uploader.publish(Position(0, path.stat().st_size), 0)
    assert memory.objects["journal/000000.log"] == good
    assert f"journal/000000+{len(good)}.log" in memory.objects


async def test_storage_that_is_a_directory_is_read_in_place(run: Run, tmp_path: Path) -> None:
    memory = MemoryStore()
    uploader = await run.uploader(memory)
    for _ in range(5):
        await uploader.publish(run.grow(10), 0)
    await uploader.publish(run.grow(1), 0)
    copy = tmp_path / "copy"
    copy.mkdir()
    for key in journal_of(memory):
        (copy / Path(key).name).write_bytes(memory.objects[key])
    assert len([*copy.iterdir()]) > 1
    assert [int(payload[:6]) for payload, _ in read(copy)] == [*range(51)]
    again = Journal(copy)
    assert again.cuts == []
    assert again.position == run.journal.position
    again.append([b"000051 and it is continued"])
    again.close()
    assert [int(payload[:6]) for payload, _ in read(copy)] == [*range(52)]


@pytest.mark.parametrize(
    "name", ["../000000.log", "000000+.log", "000000+-1.log", "/000000.log", "000000.log/x", "a"]
)
def test_a_head_names_parts_of_the_journal_and_nothing_else(name: str) -> None:
    head = {
        "format": 2,
        "experiment_id": "x",
        "epoch": "",
        "segments": [{"name": name, "size": 1, "crc32": 1}],
    }
    with pytest.raises(ValueError, match=r"called|name"):
        parse_head(json.dumps(head).encode())
