"""`holdfast rm`: what it removes, what it refuses, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.experiment.folder.contents import aside_of, experiments_in
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.place import mark
from holdfast.experiment.records.view import Condition
from holdfast.results.doctor.upload import sync
from holdfast.results.reading import ExperimentNotFound, ExperimentSite, read_records
from holdfast.results.removal import Part, Removal, erase, erase_objects, removal
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.uploader.lock import ExperimentLock, Locked
from holdfast.trial.errors import InvalidConfig, TuneError
from tests.rig.runs.patient import copied, healthy, stored
from tests.rig.storage.s3_server import S3Server
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore

LATER = 4e9  # seconds since 1970: whatever was published has been silent for long


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of `here/run` is `there/run`, a directory."""
    return stored(tmp_path_factory.mktemp("kept"), metric="loss", mode="min")


@pytest.fixture
def folder(template: Path, in_memory: Path) -> Path:
    return copied(template, in_memory / "kept")


@pytest.fixture
def alone(folder: Path) -> Path:
    """An experiment of this machine, with nothing elsewhere."""
    (folder / "here" / "run" / ".mirror-of").unlink()
    return folder / "here" / "run"


def planned(path: Path, part: Part = "both", *, now: float = LATER) -> Removal:
    """As on a machine whose trees are in `here`."""
    place = path.parent.parent / "here"
    settings = Settings(local_dir=place, explicit_local_dir=path.parent != place)
    return removal(str(path), part, settings, {}, now=now)


def perform(one: Removal) -> None:
    erase(one.layout, one.remote, experiment_id=one.experiment_id, known=one.claim)


def test_a_tree_is_removed_with_what_is_the_users_and_no_link_is_followed(alone: Path) -> None:
    outside = alone.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    (alone / "link").symlink_to(outside)
    (alone / "notes.txt").write_text("mine, too")
    trial = next(path for path in alone.glob("train_*") if path.is_dir())
    (trial / "data").symlink_to(outside / "precious")
    one = planned(alone)
    assert one.others == ("link", "notes.txt")
    assert one.entry.standing.counts == {"TERMINATED": 2, "ERROR": 1}
    assert one.entry.best is not None
    assert one.bytes_here == one.entry.size_bytes
    assert one.bytes_here > 1_000
    perform(one)
    assert sorted(os.listdir(alone.parent)) == ["outside"]
    assert (outside / "precious").read_text() == "mine"


def test_tree_and_storage_go_together_or_one_of_them(folder: Path) -> None:
    here, there = folder / "here" / "run", folder / "there" / "run"
    both = planned(there)
    assert (both.layout, both.remote) == (Layout(here), Location.resolve(there, None, {}))
    assert both.objects > 10
    only = planned(there, "local")
    assert (only.remote, only.keeps) == (None, str(there))
    perform(only)
    assert not here.exists()
    rest = planned(there, "storage")
    assert rest.layout is None
    assert rest.bytes_stored == rest.entry.size_bytes
    perform(rest)
    assert list((folder / "here").iterdir()) == list((folder / "there").iterdir()) == []


def test_the_tree_of_a_storage_is_not_removed_without_saying_which(folder: Path) -> None:
    here, there = folder / "here" / "run", folder / "there" / "run"
    with pytest.raises(InvalidConfig, match=r"this machine's tree of the experiment in .*--local"):
        planned(here)
    with pytest.raises(InvalidConfig, match="no storage elsewhere"):
        planned(here, "storage")
    shutil.rmtree(here)
    with pytest.raises(InvalidConfig, match="this machine has no tree"):
        planned(there, "local")


@pytest.mark.parametrize("name", ["journal", "head.json", ".lock", "checkpoint_000000"])
@pytest.mark.parametrize("place", ["here", "there"])
def test_a_folder_that_is_not_an_experiment_is_refused(
    folder: Path, place: str, name: str
) -> None:
    """Other programs have folders with these names."""
    mine = folder / place / "mine"
    (mine / name).mkdir(parents=True)
    (mine / name / "2026.md").write_text("Dear diary")
    with pytest.raises(ExperimentNotFound):
        planned(mine)
    with pytest.raises(ExperimentNotFound, match="a folder of experiments"):
        planned(folder / "here")
    link = folder / "here" / "link"
    link.symlink_to("run")
    with pytest.raises(InvalidConfig, match=f"is a link to {folder}/here/run: pass that path"):
        planned(link)


def test_a_damaged_one_is_removed_too_and_says_why_it_cannot_be_read(alone: Path) -> None:
    (alone / "journal" / "000000.log").write_bytes(b"no journal at all")
    one = planned(alone)
    assert one.entry.state is Condition.UNREADABLE
    assert "does not begin as a journal does" in one.entry.problem
    perform(one)
    assert not alone.exists()


def test_one_that_runs_here_is_refused_with_who_runs_it(folder: Path, alone: Path) -> None:
    one = planned(alone)
    lock = ExperimentLock(alone / ".lock")
    try:
        with pytest.raises(Locked, match=f"process {os.getpid()} .*Stop it first"):
            planned(alone)
        with pytest.raises(Locked, match="is using it"):
            perform(one)  # it began between the question and the answer
    finally:
        lock.release()
    assert alone.is_dir()


def test_one_that_was_published_lately_elsewhere_is_refused_until_it_is_silent(
    folder: Path,
) -> None:
    there = folder / "there" / "run"
    shutil.rmtree(folder / "here" / "run")
    published = (there / "head.json").stat().st_mtime
    with pytest.raises(Locked, match=r"published 30s ago.*was killed, remove it in 10m 30s"):
        planned(there, now=published + 30)
    (there / "journal" / "000000.log").unlink()
    with pytest.raises(Locked, match="published 30s ago"):  # also if it cannot be read
        planned(there, now=published + 30)
    assert planned(there, now=published + 661).objects > 10


@pytest.mark.parametrize("step", ["rename", "fsync_dir", "delete_tree"])
def test_an_interrupted_removal_leaves_no_experiment_and_the_next_one_finishes_it(
    alone: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    def dies(path: Path, *_: object) -> None:
        if path == aside_of(alone) and not path.exists():
            return  # nothing is left of an earlier one
        for one in sorted(path.rglob("*")) if step == "delete_tree" else ():
            one.unlink() if one.is_file() and "journal" not in str(one) else None
        raise Killed

    where, one = (
        "os" if step == "rename" else "holdfast.experiment.folder.contents",
        planned(alone),
    )
    with monkeypatch.context() as patched:
        patched.setattr(f"{where}.{step}", dies)
        with pytest.raises(Killed):
            perform(one)
    assert list(experiments_in(str(alone.parent))) == ["run"] * (step == "rename")
    again = planned(alone)
    assert again.bytes_here > 0
    perform(again)
    assert list(alone.parent.iterdir()) == []
    with pytest.raises(ExperimentNotFound):
        planned(alone)


def objects_of(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def unreadable(objects: dict[str, bytes], target: Path) -> bool:
    for key, data in objects.items():
        (target / key).parent.mkdir(parents=True, exist_ok=True)
        (target / key).write_bytes(data)
    target.mkdir(exist_ok=True)
    try:
        read_records(Location.resolve(target, None, {}))
    except TuneError:
        return True
    return False


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER])
def test_a_removal_cut_at_any_request_leaves_all_or_nothing_readable(
    folder: Path, in_memory: Path, fault: Fault
) -> None:
    before = objects_of(folder / "there" / "run")

    def cut(at: int) -> tuple[MemoryStore, int]:
        memory = MemoryStore(dict(before))
        store = FaultyStore(memory, at=at, fault=fault, lasting=True)
        with suppress(StorageError):
            asyncio.run(erase_objects(store, experiment_id="e", known=Claim(1)))
        return memory, store.operations

    _, operations = cut(0)
    assert operations > 5
    for at in range(1, operations + 1):
        memory, _ = cut(at)
        is_whole = before.items() <= memory.objects.items()
        assert is_whole or unreadable(memory.objects, in_memory / f"{fault}-{at}")
        known = Claim.newest(memory.objects)
        asyncio.run(erase_objects(memory, experiment_id="e", known=known))
        assert memory.objects == {}


def test_a_run_that_begins_in_between_keeps_its_storage(folder: Path) -> None:
    before = objects_of(folder / "there" / "run")
    memory = MemoryStore({**before, ".epochs/000002": b"another"})
    with pytest.raises(StorageError, match=r"has begun meanwhile\. Look at it again"):
        asyncio.run(erase_objects(memory, experiment_id="e", known=Claim(1)))
    memory = MemoryStore(dict(before))

    class Late(FaultyStore):
        """Another run claims the storage when the first object goes."""

        async def delete(self, keys: object) -> None:
            memory.objects[".epochs/000003"] = b"another"
            await self.inner.delete(keys)  # type: ignore[arg-type]

    with pytest.raises(StorageError, match="a newer restore of this experiment has taken over"):
        asyncio.run(erase_objects(Late(memory), experiment_id="e", known=Claim(1)))
    assert ".epochs/000003" in memory.objects
    assert any(key.endswith("model.txt") for key in memory.objects)


def test_a_bucket_is_left_empty_and_its_neighbours_are_left_alone(
    folder: Path, moto: S3Server
) -> None:
    uri = moto.uri("bucket/erasing/run")
    neighbour = Location.resolve(moto.uri("bucket/erasing/run-2"), None, {})
    remote = Location.resolve(uri, None, {})
    run = healthy(folder / "s3" / "run", metric="loss", mode="min")
    mark(run.layout, remote)
    sync(ExperimentSite(shown="run", layout=run.layout, remote=remote))
    with_store(neighbour, lambda store: store.put("head.json", b"{}"))
    settings = Settings(local_dir=folder / "s3", explicit_local_dir=True)
    one = removal(uri, "both", settings, {}, now=LATER)
    assert (one.layout, one.entry.standing.counts) == (run.layout, {"TERMINATED": 2, "ERROR": 1})
    assert one.objects > 20
    assert "any" not in one.plain()["storage"]  # the secret key
    perform(one)
    assert with_store(remote, lambda store: store.list()) == []
    assert with_store(neighbour, lambda store: store.list()) != []
    assert not run.layout.root.exists()
    with pytest.raises(ExperimentNotFound):
        removal(uri, "both", settings, {}, now=LATER)
    with pytest.raises(ExperimentNotFound):  # a head alone may be another program's
        removal(moto.uri("bucket/erasing/run-2"), "both", settings, {}, now=LATER)


def test_whoever_waits_for_the_lock_of_a_removed_tree_does_not_get_it(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = ExperimentLock._take

    def removed_before(self: ExperimentLock, deadline_s: float) -> None:
        os.rename(alone, aside_of(alone))
        take(self, deadline_s)

    with monkeypatch.context() as patched:
        patched.setattr(ExperimentLock, "_take", removed_before)
        with pytest.raises(Locked, match="was removed meanwhile"):
            ExperimentLock(alone / ".lock")
    ExperimentLock(alone / ".lock").release()  # a new one begins there
    assert sorted(os.listdir(alone)) == [".lock", ".lock-workers"]
