"""Checkpoints as users handle them: local ones in place, remote ones fetched once and verified."""

from __future__ import annotations

import asyncio
import pickle
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import cache_folder
from holdfast.syncer.errors import (
    DirectoryMissing,
    ManifestMismatch,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    UnusableFile,
)
from holdfast.syncer.files.tree import MANIFEST_NAME, METADATA_NAME
from holdfast.syncer.stores.location import Location
from tests.rig.storage.s3_server import S3Server
from tests.syncer.conftest import Distant


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    (made / "nested").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "model.pt").write_bytes(b"weights" * 1000)
    (made / "nested" / "a b.json").write_bytes(b"{}")
    return made


def upload(folder: Path, location: Location) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]

    async def put_all() -> None:
        store = location.open_store()
        for path in files:
            await store.put(str(path.relative_to(folder)), path)
        await store.close()

    asyncio.run(put_all())


def names(folder: Path | str) -> set[str]:
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*")}


@pytest.fixture
def remote(folder: Path, distant: Distant, temporary_folder: Path) -> Checkpoint:
    """A committed checkpoint in remote storage; copies go into the test's own folder."""
    manifest.write(folder)
    upload(folder, distant.location)
    return Checkpoint.from_location(distant.location)


def test_a_local_checkpoint_is_its_own_directory(folder: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    with checkpoint.as_directory() as path:
        assert path == str(folder) == checkpoint.path
    assert folder.exists()


def test_a_relative_directory_keeps_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(folder.parent)
    checkpoint = Checkpoint.from_directory(folder.name)
    monkeypatch.chdir("/")
    assert checkpoint.path == str(folder)


def test_a_directory_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/nowhere: this directory does not"):
        Checkpoint.from_directory(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(UnusableFile, match="file: this is not a directory"):
        Checkpoint.from_directory(tmp_path / "file")


def test_a_directory_that_went_away_is_named(folder: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    folder.rename(folder.with_name("moved"))
    with pytest.raises(DirectoryMissing), checkpoint.as_directory():
        pass
    with pytest.raises(DirectoryMissing):
        checkpoint.to_directory()
    with pytest.raises(DirectoryMissing):
        checkpoint.get_metadata()
    with pytest.raises(DirectoryMissing):
        checkpoint.set_metadata({})


def test_to_directory_copies_all_but_our_manifest(folder: Path, tmp_path: Path) -> None:
    manifest.write(folder)
    copy = Checkpoint.from_directory(folder).to_directory(tmp_path / "deep" / "copy")
    assert copy == str(tmp_path / "deep" / "copy")
    assert names(copy) == names(folder) - {MANIFEST_NAME}
    assert (Path(copy) / "model.pt").read_bytes() == b"weights" * 1000


def test_to_directory_makes_a_temporary_one_of_its_own(
    folder: Path, temporary_folder: Path
) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    one, two = checkpoint.to_directory(), checkpoint.to_directory()
    assert one != two
    assert Path(one).parent == Path(two).parent == temporary_folder


def test_to_directory_keeps_what_else_is_in_the_target(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "nested").mkdir(parents=True)
    (target / "nested" / "mine").write_bytes(b"mine")
    (target / "model.pt").write_bytes(b"old")
    Checkpoint.from_directory(folder).to_directory(target)
    assert names(target) == names(folder) | {"nested/mine"}
    assert (target / "model.pt").read_bytes() == b"weights" * 1000


def test_metadata_is_kept_next_to_the_files(folder: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"epoch": 3, "name": "x"})
    checkpoint.update_metadata({"epoch": 4})
    assert Checkpoint(folder).get_metadata() == {"epoch": 4, "name": "x"}
    checkpoint.set_metadata({"only": True})
    assert checkpoint.get_metadata() == {"only": True}
    assert METADATA_NAME in names(checkpoint.to_directory(folder.with_name("copy")))


def test_metadata_that_json_cannot_hold_is_refused(folder: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    not_a_dict: Any = ["no dict"]
    for metadata in [{"object": object()}, not_a_dict]:
        with pytest.raises(TypeError, match="metadata must be"):
            checkpoint.set_metadata(metadata)
    (folder / METADATA_NAME).write_bytes(b"{broken")
    with pytest.raises(ManifestMismatch, match="not JSON"):
        checkpoint.get_metadata()


def test_checkpoints_of_one_place_are_equal_and_travel(folder: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    assert checkpoint == Checkpoint(str(folder))
    assert checkpoint != Checkpoint(folder / "nested")
    assert len({checkpoint, Checkpoint(folder)}) == 1
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint
    assert repr(checkpoint) == f"Checkpoint('{folder}')"


def test_a_subclass_is_made_by_its_own_constructor(folder: Path) -> None:
    class Mine(Checkpoint):
        pass

    assert isinstance(Mine.from_directory(folder), Mine)
    assert repr(Mine(folder)).startswith("Mine(")


def test_a_uri_may_be_given_and_its_secret_is_not_shown() -> None:
    checkpoint = Checkpoint("s3://key1:hunter2@bucket/x")
    assert checkpoint.path == "bucket/x"
    assert "hunter2" not in repr(checkpoint)
    assert pickle.loads(pickle.dumps(checkpoint)).location.base.options["secret_key"] == "hunter2"


def test_a_remote_checkpoint_is_fetched_whole_and_goes_when_the_reader_leaves(
    remote: Checkpoint, folder: Path, temporary_folder: Path
) -> None:
    with remote.as_directory() as path:
        assert names(path) == names(folder) - {MANIFEST_NAME}
        assert (Path(path) / "model.pt").read_bytes() == b"weights" * 1000
        assert Path(path).is_relative_to(temporary_folder)
    assert list(cache_folder().iterdir()) == []


def test_readers_at_the_same_time_share_one_download(remote: Checkpoint, distant: Distant) -> None:
    together = threading.Barrier(6, timeout=30)

    def read() -> str:
        together.wait()
        with remote.as_directory() as path:
            together.wait()
            return path

    with ThreadPoolExecutor(6) as readers:
        paths = {reader.result() for reader in [readers.submit(read) for _ in range(6)]}
    assert len(paths) == 1
    assert len([path for path in distant.opened if path.endswith("model.pt")]) == 1
    assert list(cache_folder().iterdir()) == []


def test_damaged_bytes_are_never_shown(remote: Checkpoint, distant: Distant) -> None:
    model = distant.folder / "model.pt"
    model.write_bytes(b"Weights" * 1000)
    with (
        pytest.raises(ManifestMismatch, match=r"model\.pt has a different"),
        remote.as_directory(),
    ):
        pass
    model.write_bytes(b"weights")
    with pytest.raises(ManifestMismatch, match="has 7 bytes instead of 7000"):
        remote.to_directory()
    model.unlink()
    with pytest.raises(ManifestMismatch, match="missing"), remote.as_directory():
        pass
    assert list(cache_folder().iterdir()) == []


def test_another_content_under_the_same_name_is_fetched_again(
    remote: Checkpoint, folder: Path
) -> None:
    with remote.as_directory() as before:
        (folder / "model.pt").write_bytes(b"better")
        manifest.write(folder)
        upload(folder, remote.location)
        with remote.as_directory() as after:
            assert (Path(after) / "model.pt").read_bytes() == b"better"
            assert (Path(before) / "model.pt").read_bytes() == b"weights" * 1000


def test_a_remote_place_without_files_is_named(distant: Distant, temporary_folder: Path) -> None:
    checkpoint = Checkpoint.from_location(distant.location)
    with pytest.raises(DirectoryMissing, match="distant: this folder is empty"):
        checkpoint.to_directory()


def test_remote_metadata_is_read_and_written_in_place(remote: Checkpoint) -> None:
    assert remote.get_metadata() == {}
    remote.set_metadata({"epoch": 1})
    remote.update_metadata({"best": True})
    assert remote.get_metadata() == {"epoch": 1, "best": True}
    with remote.as_directory() as path:
        assert METADATA_NAME in names(path)


def test_a_remote_checkpoint_opens_inside_a_running_loop(remote: Checkpoint) -> None:
    async def in_a_notebook() -> set[str]:
        with remote.as_directory() as path:
            return names(path)

    assert "model.pt" in asyncio.run(in_a_notebook())


def test_an_object_named_to_climb_out_is_refused(
    distant: Distant, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.syncer.stores.store import ObjectInfo
    from tests.rig.storage.stores import MemoryStore

    class Hostile(MemoryStore):
        async def list(self, prefix: str = "", *, leftovers: bool = False) -> Any:
            return [ObjectInfo(key="../../.bashrc", size=1)]

    monkeypatch.setattr(Location, "open_store", lambda _: Hostile())
    with pytest.raises(UnusableFile, match=r"\.bashrc"):
        Checkpoint.from_location(distant.location).to_directory()


def test_a_cache_that_others_may_write_to_is_not_used(
    remote: Checkpoint, temporary_folder: Path
) -> None:
    cache_folder().chmod(0o777)
    with pytest.raises(StorageRefused, match="others may write"), remote.as_directory():
        pass


@pytest.mark.server
def test_a_checkpoint_on_s3_behaves_the_same(
    moto: S3Server, folder: Path, temporary_folder: Path
) -> None:
    location = Location.resolve(moto.uri("bucket/checkpoints/one"), None, {})
    manifest.write(folder)
    upload(folder, location)
    checkpoint = Checkpoint(moto.uri("bucket/checkpoints/one"))
    assert checkpoint == Checkpoint.from_location(location)
    assert checkpoint.path == "bucket/checkpoints/one"
    assert checkpoint.filesystem.type_name == "s3"
    checkpoint.set_metadata({"a": 1})
    assert checkpoint.get_metadata() == {"a": 1}
    with checkpoint.as_directory() as path:
        assert names(path) == names(folder) - {MANIFEST_NAME} | {METADATA_NAME}
    given = Checkpoint(checkpoint.path, checkpoint.filesystem)
    copy = cloudpickle.loads(cloudpickle.dumps(given))
    assert copy == given
    assert names(copy.to_directory()) == names(folder) - {MANIFEST_NAME} | {METADATA_NAME}


def test_a_failed_download_leaves_nothing(
    remote: Checkpoint, distant: Distant, monkeypatch: pytest.MonkeyPatch, temporary_folder: Path
) -> None:
    original = distant.kind._open

    def broken(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        if path.endswith("model.pt"):
            raise ConnectionResetError("the server went away")
        return original(self, path, *args, **kwargs)

    monkeypatch.setattr(distant.kind, "_open", broken)
    with pytest.raises(StorageError, match="the server went away"), remote.as_directory():
        pass
    with pytest.raises(StorageError, match="the server went away"):
        remote.to_directory()
    assert list(cache_folder().iterdir()) == []
    assert [path.name for path in temporary_folder.iterdir()] == [cache_folder().name]


def opened(checkpoint: Checkpoint) -> None:
    with checkpoint.as_directory():
        pass


@pytest.mark.parametrize(
    "call",
    [
        opened,
        Checkpoint.to_directory,
        Checkpoint.get_metadata,
        lambda checkpoint: checkpoint.set_metadata({"n": 1}),
        lambda checkpoint: checkpoint.update_metadata({"n": 1}),
    ],
)
def test_an_error_of_storage_comes_without_its_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: Callable[[Checkpoint], Any]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen: every connection is refused
        place = f"endpoint_override=127.0.0.1:{nobody.getsockname()[1]}&scheme=http"
        with pytest.raises(StorageUnavailable) as failure:
            call(Checkpoint(f"s3://bucket/x?{place}"))
    error = failure.value
    assert error.__cause__ is error.__context__ is None
    lines = "".join(traceback.format_exception(error)).splitlines()
    assert len(lines) < 20
    assert "Could not connect" in lines[-1]


def test_what_the_user_raises_while_it_is_open_keeps_its_history(folder: Path) -> None:
    raised = StorageUnavailable("try", "x")
    with pytest.raises(StorageUnavailable) as failure, Checkpoint(folder).as_directory():
        raise raised from ValueError("why")
    assert isinstance(failure.value.__cause__, ValueError)


def test_a_dict_is_a_checkpoint_of_one_file() -> None:
    data = {"step": 3, "function": lambda x: x + 1}
    checkpoint = Checkpoint.from_dict(data)
    with checkpoint.as_directory() as folder:
        assert [one.name for one in Path(folder).iterdir()] == ["dict_checkpoint.pkl"]
    found = checkpoint.to_dict()
    assert (found["step"], found["function"](1)) == (3, 2)
    del checkpoint
    assert not Path(folder).exists()


def test_a_uri_is_a_checkpoint_under_the_older_name_too(folder: Path) -> None:
    assert Checkpoint.from_uri(folder.as_uri()) == Checkpoint(folder)


def test_files_that_no_dict_made_are_not_read_as_one(folder: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"has no dict_checkpoint.pkl: .*\.as_directory\(\)"
    ):
        Checkpoint(folder).to_dict()
