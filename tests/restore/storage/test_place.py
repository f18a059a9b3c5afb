"""The parts of an experiment here and in storage, and which of them count."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import LocalFileSystem

from holdfast.api.tuner import Tuner
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal import JournalUnreadable
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.records.place import (
    ExperimentPlace,
    address_of,
    claim,
    find_place,
    split,
)
from holdfast.experiment.records.recovery import NothingToRestore, recover
from holdfast.scheduler.events import SearchEnded
from holdfast.syncer.errors import StorageBusy, StorageError, StorageUnavailable
from holdfast.syncer.stores import preflight
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.store import ObjectInfo
from holdfast.trial.config import RunConfig, SyncConfig
from holdfast.trial.errors import ExperimentExists, InvalidConfig
from tests.rig.runs.recorded import RecordedExperiment


class Died(BaseException):
    """The machine stops here."""


@pytest.fixture
def place(tmp_path: Path) -> ExperimentPlace:
    settings = Settings(local_dir=tmp_path / "here", explicit_local_dir=True)
    return find_place(tmp_path / "storage", None, "e", settings, {})


def kept_in(storage: str, tmp_path: Path) -> ExperimentPlace:
    """The place of an experiment named `e` in that storage, on a machine of the test."""
    settings = Settings(local_dir=tmp_path / "here")
    return find_place(storage, None, "e", settings, {})


def begin(place: ExperimentPlace, run: str) -> None:
    record(place.layout.root, run)
    claim(place)


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ("s3://bucket/x/?endpoint_override=http://h:1", "s3://bucket/x/e?endpoint_override=http://h:1"),
        ("/mnt/shared/", "/mnt/shared/e"),
        (Path("/mnt/shared"), "/mnt/shared/e"),
        (None, "/work/e"),
    ],
)  # fmt: skip
def test_a_run_config_says_where_its_experiment_is(storage: Any, expected: str) -> None:
    settings = Settings(local_dir=Path("/work"))
    config = RunConfig(storage_path=storage, name="e")
    assert address_of(config, None, settings) == (expected, None)
    filesystem = LocalFileSystem()
    config = RunConfig(storage_path="a?b", storage_filesystem=filesystem, name="e")
    assert address_of(config, None, settings) == ("a?b/e", filesystem)
    with pytest.raises(InvalidConfig, match=r"pass RunConfig\(name=\.\.\.\)"):
        address_of(RunConfig(), None, settings)


def test_experiments_of_one_name_in_two_storages_have_a_tree_each(tmp_path: Path) -> None:
    one = kept_in("s3://one/x", tmp_path)
    begin(one, "one")
    other = kept_in("s3://other/x", tmp_path)
    begin(other, "other")
    assert one.layout.root == tmp_path / "here" / "e"
    assert other.layout.root.name.startswith("e-")
    assert kept_in("s3://one/x", tmp_path) == one
    assert kept_in("s3://other/x", tmp_path) == other


def test_a_storage_is_the_same_by_whatever_address_it_is_reached(tmp_path: Path) -> None:
    """Unpersisted files are here, and each of them finds them."""
    place = kept_in("s3://bucket/a b?endpoint_override=http://127.0.0.1:1", tmp_path)
    begin(place, "one")
    again = kept_in("s3://bucket/a%20b/?endpoint_override=http://127.0.0.1:2", tmp_path)
    assert again.layout == place.layout


@pytest.mark.parametrize("storage", ["s3://bucket/x", "gs://bucket", "file:///mnt", "memory://x"])
def test_a_name_with_odd_characters_is_found_by_its_uri(storage: str, tmp_path: Path) -> None:
    name = "my 50%41 #1&+ü" if storage.startswith("memory") else "my 50%41 #1?&+ü"
    config = RunConfig(storage_path=storage, name=name)
    settings = Settings(local_dir=tmp_path)
    begun = OpenedExperiment.at(config, None, settings, {}).place
    assert begun.name == name
    uri = begun.location.uri
    assert uri is not None
    again = OpenedExperiment.at(uri, None, settings, {}).place
    assert (again.name, again.location.path) == (name, begun.location.path)
    with pytest.raises(NothingToRestore, match="names no experiment"):
        OpenedExperiment.at("s3://bucket/..%2F..%2Fetc", None, settings, {})


def test_an_experiment_that_lies_only_here_is_not_taken_for_that_of_a_storage(
    tmp_path: Path,
) -> None:
    local = kept_in(str(tmp_path / "here"), tmp_path)
    begin(local, "local")
    assert kept_in("s3://bucket", tmp_path).layout != local.layout


def test_the_tree_of_a_storage_is_not_begun_in_as_if_it_lay_only_here(tmp_path: Path) -> None:
    begin(kept_in("s3://bucket", tmp_path), "remote")
    with pytest.raises(
        ExperimentExists, match=r"another storage \(s3://bucket/e\): .*resume s3://"
    ):
        OpenedExperiment(kept_in(str(tmp_path / "here"), tmp_path)).refuse_unfinished()


def test_a_directory_that_cannot_be_written_can_be_opened_for_a_restore(tmp_path: Path) -> None:
    root = record(tmp_path / "here" / "e", "read-only")
    lock = root / ".lock"
    lock.unlink()
    lock.symlink_to("/proc/no/such")  # no one, not even root, can write it
    opened = OpenedExperiment.at(root, None, Settings(local_dir=tmp_path / "elsewhere"), {})
    opened.prepare()
    assert opened.place.layout.root == root


class BusyAtFirst:
    """A storage that answers two questions with "busy"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        head = LocalStore.head

        async def busy(store: LocalStore, key: str) -> ObjectInfo | None:
            self.asked += 1
            if self.asked <= 2:
                raise StorageBusy("head", key, "503 Slow Down")
            return await head(store, key)

        monkeypatch.setattr(LocalStore, "head", busy)
        monkeypatch.setattr(preflight, "_FIRST_PAUSE_S", 0.001)


def test_a_restore_waits_for_a_storage_that_cannot_now_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / "here"))
    storage = BusyAtFirst(monkeypatch)
    with pytest.raises(NothingToRestore):  # which it knows by then
        Tuner.restore(str(tmp_path / "storage" / "e"))
    assert storage.asked > 2
    assert [record.getMessage().partition(". ")[2] for record in caplog.records] == [
        "Waiting for it, 1800 s at most"
    ]
    assert "503 Slow Down" in caplog.text


def test_the_wait_of_a_restore_is_as_long_as_its_run_config_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / "here"))
    run = RunConfig(
        name="e",
        storage_path=str(tmp_path / "storage"),
        sync_config=SyncConfig(sync_timeout=0.0001),
    )
    for ask in (Tuner.restore, Tuner.can_restore):
        BusyAtFirst(monkeypatch)
        with pytest.raises(StorageBusy, match="503 Slow Down"):
            ask(run)
    storage = BusyAtFirst(monkeypatch)
    assert not Tuner.can_restore(replace(run, sync_config=SyncConfig()))
    assert storage.asked > 2


def record(root: Path, run: str, *, trials: int = 1, finished: bool = True) -> Path:
    """The same experiment for the same `run`, with this many trials."""
    recorded = RecordedExperiment(root, run=run)
    for _ in range(trials):
        recorded.finish(recorded.begin())
    if finished:
        recorded.add(SearchEnded())
    recorded.close()
    return root


def publish(place: ExperimentPlace, root: Path) -> None:
    """The objects that the uploader makes of a tree."""
    assert place.remote is not None
    stored = Path(place.remote.path)
    shutil.rmtree(stored, ignore_errors=True)
    shutil.copytree(root / "journal", stored / "journal")
    (stored / "tuner.pkl").write_bytes(b"tuner")
    (stored / "callbacks.msgpack").write_bytes(b"callbacks")
    found = [(path.name, path.read_bytes()) for path in sorted(stored.glob("journal/*.log"))]
    head = {
        "format": 2,
        "experiment_id": f"experiment-{root.name}",
        "epoch": ".epochs/000001",
        "segments": [
            {"name": name, "size": len(data), "crc32": zlib.crc32(data)} for name, data in found
        ],
    }
    (stored / "head.json").write_text(json.dumps(head))


def trials_here(place: ExperimentPlace) -> int:
    return len(recover(place.layout).machine.trials)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def dies_at(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[], BaseException]
) -> None:
    """Make the read of an object with this name raise, after all others."""
    get, read = LocalStore.get, LocalStore.read

    async def failing_get(store: LocalStore, key: str, target: Path) -> int:
        if key == name:
            raise error()
        return await get(store, key, target)

    async def failing_read(store: LocalStore, key: str) -> bytes:
        if key == name:
            raise error()
        return await read(store, key)

    monkeypatch.setattr(LocalStore, "get", failing_get)
    monkeypatch.setattr(LocalStore, "read", failing_read)


def follows_an_earlier_run(place: ExperimentPlace) -> bool:
    told: list[str] = []
    OpenedExperiment(place).refuse_unfinished(told.append)
    return bool(told)


def test_a_name_is_not_free_while_another_machine_runs_under_it(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    publish(place, record(tmp_path / "first", "first"))
    shutil.copytree(tmp_path / "first", place.layout.root)
    assert follows_an_earlier_run(place)
    publish(place, record(tmp_path / "second", "second", finished=False))
    with pytest.raises(ExperimentExists, match=r"Another machine.*Move that directory away.*then"):
        OpenedExperiment(place).refuse_unfinished()
    place.layout.root.rename(tmp_path / "away")
    with pytest.raises(ExperimentExists, match=r"not finished.*Tuner\.restore"):
        OpenedExperiment(place).refuse_unfinished()


def test_a_name_is_not_free_where_another_machine_took_the_experiment_further(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    record(place.layout.root, "first")
    publish(place, record(tmp_path / "first", "first", trials=2))
    with pytest.raises(ExperimentExists, match="Another machine has begun or continued"):
        OpenedExperiment(place).refuse_unfinished()
    place.layout.root.rename(tmp_path / "away")
    assert follows_an_earlier_run(place)


def test_a_name_is_free_where_a_finished_experiment_is_gone_from_storage(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    record(place.layout.root, "first")
    assert follows_an_earlier_run(place)


def test_a_restore_resumes_the_second_experiment_of_a_tree_before_it_is_published(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    publish(place, record(tmp_path / "first", "first"))
    shutil.copytree(tmp_path / "first", place.layout.root)
    other = record(tmp_path / "second", "second", trials=2, finished=False)
    shutil.copy(other / "journal" / "000000.log", place.layout.journal / "000001.log")
    OpenedExperiment(place).bring()
    assert trials_here(place) == 2


@pytest.mark.parametrize("last", ["journal/000000.log", "tuner.pkl", "callbacks.msgpack"])
def test_a_download_that_fails_leaves_what_was_here(
    place: ExperimentPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    record(place.layout.root, "first")
    publish(place, record(tmp_path / "first", "first", trials=2))
    with monkeypatch.context() as patched:
        dies_at(patched, last, lambda: StorageError("read", last, "the network is gone"))
        with pytest.raises(StorageError, match="the network is gone"):
            OpenedExperiment(place).bring()
    assert names(place.layout.root.parent) == ["e"]
    assert trials_here(place) == 1
    OpenedExperiment(place).bring()
    assert names(place.layout.root.parent) == ["e", "e.before-000001"]
    assert trials_here(place) == 2
    assert place.layout.tuner.read_bytes() == b"tuner"


def test_a_download_that_a_machine_died_in_counts_for_nothing(
    place: ExperimentPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(place, record(tmp_path / "first", "first"))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # nothing is tidied up
        dies_at(patched, "callbacks.msgpack", lambda: StorageError("read", "it", "it died"))
        with pytest.raises(StorageError):
            OpenedExperiment(place).bring()
    (left,) = names(tmp_path / "here")
    assert left == f"e.partial-{os.getpid()}"
    assert names(tmp_path / "here" / left) == ["journal", "tuner.pkl"]
    (tmp_path / "here" / left / "journal" / "000007.log").write_bytes(b"of another time")
    OpenedExperiment(place).bring()
    assert names(tmp_path / "here") == ["e"]
    assert names(place.layout.root) == [
        ".mirror-at",
        ".mirror-of",
        "callbacks.msgpack",
        "journal",
        "tuner.pkl",
    ]
    assert names(place.layout.journal) == ["000000.log"]


@pytest.mark.parametrize("died_at", [1, 2, 3])
def test_a_death_between_two_renames_is_made_good(
    place: ExperimentPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_at: int
) -> None:
    record(place.layout.root, "first")
    (place.layout.root / "tuner.pkl").write_bytes(b"of before")
    publish(place, record(tmp_path / "first", "first", trials=2))
    rename, renamed = Path.rename, []

    def dying(path: Path, target: Any) -> Path:
        renamed.append(path.name)
        if len(renamed) == died_at:
            raise Died
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dying)
        with pytest.raises(Died):
            OpenedExperiment(place).bring()
    OpenedExperiment(place).bring()
    assert trials_here(place) == 2
    assert place.layout.tuner.read_bytes() == b"tuner"


def test_a_download_into_a_tree_without_a_journal_keeps_what_is_there(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    publish(place, record(tmp_path / "first", "first"))
    (place.layout.root / "train_1").mkdir(parents=True)
    (place.layout.root / "train_1" / "artifact").write_text("mine")
    place.layout.lock.touch()
    inode = place.layout.lock.stat().st_ino
    OpenedExperiment(place).bring()
    assert trials_here(place) == 1
    assert place.layout.tuner.read_bytes() == b"tuner"
    assert place.layout.lock.stat().st_ino == inode
    assert (place.layout.root / "train_1" / "artifact").read_text() == "mine"
    assert names(tmp_path / "here") == ["e"]


def test_a_journal_without_a_beginning_is_put_aside_for_the_one_in_storage(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    publish(place, record(tmp_path / "first", "first"))
    place.layout.journal.mkdir(parents=True)
    (place.layout.journal / "000003.log").write_bytes(b"HFJRNL\0\1half")
    OpenedExperiment(place).bring()
    assert names(place.layout.journal) == ["000000.log"]
    (aside,) = (tmp_path / "here").glob("e.before-*")
    assert names(aside / "journal") == ["000003.log"]


@pytest.mark.parametrize(
    "path",
    ["/", "", " ", "//", "s3://", "s3://bucket", "s3://bucket/", "s3://bucket?region=x", "gs://b",
     "file://", "file:///", "gs://anonymous@bucket/"],
)  # fmt: skip
def test_a_path_that_names_no_experiment_is_an_error_of_one_line(path: str) -> None:
    with pytest.raises(NothingToRestore, match=r"names no experiment: pass the path") as caught:
        Tuner.restore(path)
    assert "\n" not in str(caught.value)
    assert not Tuner.can_restore(path)


@pytest.mark.parametrize("path", [".", "..", "file", "file/x"])
def test_what_is_not_an_experiment_is_an_error_of_one_line(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    monkeypatch.chdir(tmp_path / "folder")
    with pytest.raises(NothingToRestore, match=r"there is no experiment in|is a file") as caught:
        Tuner.restore(path)
    assert "\n" not in str(caught.value)
    assert not Tuner.can_restore(path)


@pytest.mark.parametrize("path", [None, 3, b"bytes", "a\0b"])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(InvalidConfig, match="the path to an experiment must be text"):
        Tuner.restore(path)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/exp", ("/", "exp")),
        ("file:///exp", ("file:///", "exp")),
        ("file:///data/exp/", ("file:///data", "exp")),
        ("s3://bucket/exp", ("s3://bucket", "exp")),
        ("s3://bucket/a/exp/?region=x", ("s3://bucket/a?region=x", "exp")),
        ("/data?/exp", ("/data?", "exp")),
    ],
)
def test_a_path_is_a_storage_path_and_a_name(path: str, parts: tuple[str, str]) -> None:
    assert split(path, None) == parts


def test_a_journal_that_cannot_be_read_is_refused_though_storage_has_one(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    """The files here may be newer, and the doctor can merge the two."""
    publish(place, record(tmp_path / "first", "first"))
    place.layout.journal.mkdir(parents=True)
    (place.layout.journal / "000000.log").write_bytes(b"HFJRMLxxx and much more")
    with pytest.raises(JournalUnreadable, match="holdfast doctor repair"):
        OpenedExperiment(place).bring()
    with pytest.raises(JournalUnreadable, match="holdfast doctor repair"):
        OpenedExperiment(place).refuse_unfinished()


def at(path: Path, tmp_path: Path, **options: Any) -> OpenedExperiment:
    """The experiment at a path, on the machine of the test."""
    settings = Settings(local_dir=tmp_path / "here")
    return OpenedExperiment.at(path, None, settings, {}, **options)


def begun_and_published(place: ExperimentPlace, tmp_path: Path, *, trials: int = 1) -> Path:
    """The tree of an experiment that is published with this many trials, and has one here."""
    begin(place, "first")
    publish(place, record(tmp_path / "first", "first", trials=trials))
    return place.layout.root


def test_the_path_of_a_tree_that_is_uploaded_means_the_experiment_in_storage(
    place: ExperimentPlace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tree = begun_and_published(place, tmp_path, trials=2)
    opened = at(tree, tmp_path)
    assert opened.place == place
    opened.prepare()
    assert trials_here(place) == 2
    assert opened.notice == f"{tree} is this machine's tree of {opened.path}: resuming that one"
    assert f"what this machine had is kept in {tree}.before-000001" in caplog.text
    aside = at(tree.with_name("e.before-000001"), tmp_path)
    assert aside.place.remote is None
    assert "is a copy of a tree of" in aside.notice


def test_it_does_so_where_another_local_directory_is_set(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    tree = begun_and_published(place, tmp_path)
    for settings in (
        Settings(local_dir=tmp_path),
        Settings(local_dir=tmp_path, explicit_local_dir=True),
    ):
        found = OpenedExperiment.at(tree, None, settings, {}).place
        assert (found.name, found.layout, found.remote) == ("e", place.layout, place.remote)
    link = tmp_path / "link"
    link.symlink_to(tree.parent)
    assert at(link / "e", tmp_path).place.remote == place.remote


def test_the_tree_of_a_moved_local_directory_is_still_that_of_the_storage(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    tree = begun_and_published(place, tmp_path)
    tree.parent.rename(tmp_path / "moved")
    settings = Settings(local_dir=tmp_path / "moved", explicit_local_dir=True)
    found = OpenedExperiment.at(tmp_path / "moved" / "e", None, settings, {}).place
    assert found.remote == place.remote
    found.layout.root.joinpath(".mirror-at").unlink()
    claim(found)  # as the next run there does
    assert at(found.layout.root, tmp_path).place.remote == place.remote


def test_a_copy_of_such_a_tree_is_an_experiment_of_its_own(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    tree = begun_and_published(place, tmp_path, trials=2)
    copy = Path(shutil.copytree(tree, tmp_path / "copies" / "e"))
    opened = at(copy, tmp_path)
    opened.prepare()
    assert (opened.place.remote, opened.place.layout.root) == (None, copy)
    assert trials_here(opened.place) == 1
    assert opened.notice.startswith(f"{copy} is a copy of a tree of {place.location}: it resumes")
    assert f"holdfast resume {place.location}" in opened.notice.replace(" -m ", " ")
    claim(opened.place, resumes=True)
    assert at(copy, tmp_path).notice == ""
    assert at(tree, tmp_path).place == place


def test_a_tree_whose_storage_does_not_answer_is_not_resumed_without_it(
    place: ExperimentPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = begun_and_published(place, tmp_path)

    async def silent(store: LocalStore, key: str) -> ObjectInfo | None:
        raise StorageUnavailable("head", key, "no route to host")

    monkeypatch.setattr(LocalStore, "head", silent)
    with pytest.raises(StorageUnavailable) as caught:
        at(tree, tmp_path).prepare()
    told = str(caught.value)
    assert told.startswith(f"cannot resume {place.location}, whose tree is {tree}: ")
    assert "no route to host" in told
    assert "copy the folder elsewhere and resume the copy" in told


@pytest.mark.parametrize("note", ["", "[]", '{"uri": "s3://another/e", "tree": ""}', '{"uri": 1}'])
def test_a_tree_that_does_not_say_how_to_reach_its_storage_is_refused(
    place: ExperimentPlace, tmp_path: Path, note: str
) -> None:
    """Earlier versions wrote no URI."""
    tree = begun_and_published(place, tmp_path)
    (tree / ".mirror-at").write_text(note)
    with pytest.raises(InvalidConfig, match="pass the URI of the experiment there"):
        at(tree, tmp_path)
    copy = Path(shutil.copytree(tree, tmp_path / "copies" / "e"))
    assert at(copy, tmp_path).place.remote is None
    assert at(copy, tmp_path).notice.endswith("and nothing is uploaded")  # no URI to resume it by


def test_a_tree_that_only_a_filesystem_reaches_is_refused(tmp_path: Path) -> None:
    settings = Settings(local_dir=tmp_path / "here")
    place = find_place("bucket", fsspec.filesystem("memory"), "e", settings, {})
    begin(place, "first")
    assert json.loads(place.layout.mirror_at.read_text())["uri"] == ""
    with pytest.raises(InvalidConfig, match=r"in bucket/e: .*and its storage_filesystem"):
        at(place.layout.root, tmp_path)


def test_with_trusted_false_a_folder_names_no_storage(
    place: ExperimentPlace, tmp_path: Path
) -> None:
    tree = begun_and_published(place, tmp_path)
    with pytest.raises(InvalidConfig, match=f"tree of {place.location},.* pass that URI"):
        at(tree, tmp_path, follows=False)


def test_no_credentials_are_noted(tmp_path: Path) -> None:
    place = kept_in("s3://key:secret@bucket/x?region=eu-1&session_token=t0ken", tmp_path)
    begin(place, "first")
    noted = json.loads(place.layout.mirror_at.read_text())
    assert noted["uri"] == "s3://bucket/x/e?region=eu-1"
    assert str(tmp_path) not in place.layout.mirror_at.read_text()
