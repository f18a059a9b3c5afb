"""Readers of a remote checkpoint while a run removes or rewrites it, and of one of others."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint import download, manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import FolderChanged
from holdfast.syncer.errors import (
    CheckpointGone,
    DirectoryMissing,
    ManifestMismatch,
    NotStored,
    StorageRefused,
    StorageUnavailable,
)
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME
from holdfast.syncer.stores.generic import ArrowStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3 import ranges
from tests.rig.storage.s3_server import S3Server
from tests.syncer.checkpoint.remote import NAMES, Meanwhile, left, write
from tests.syncer.checkpoint.remote import checkpoint as checkpoint
from tests.syncer.checkpoint.remote import folder as folder
from tests.syncer.checkpoint.remote import meanwhile as meanwhile
from tests.syncer.conftest import Distant

pytestmark = pytest.mark.usefixtures("temporary_folder")


def test_one_that_was_superseded_is_named_as_that(checkpoint: Checkpoint, folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(CheckpointGone, match="num_to_keep supersedes") as told:
        checkpoint.to_directory()
    assert isinstance(told.value, NotStored)
    assert isinstance(told.value, DirectoryMissing)


def test_one_that_is_on_its_way_in_or_out_is_not_read(
    checkpoint: Checkpoint, folder: Path
) -> None:
    (folder / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointGone, match="its upload is incomplete, or it is being removed"):
        checkpoint.to_directory()
    with pytest.raises(CheckpointGone), checkpoint.as_directory():
        pass
    assert left() == []


@pytest.mark.parametrize("removed", [(), ("model.pt",), NAMES])
def test_one_that_is_removed_during_its_download_is_read_whole_or_not_at_all(
    checkpoint: Checkpoint, folder: Path, meanwhile: Meanwhile, removed: tuple[str, ...]
) -> None:
    """Remove it as the uploader does: the manifest first."""

    def remove() -> None:
        for name in (MANIFEST_NAME, *removed):
            (folder / name).unlink()

    meanwhile(remove)
    if removed:
        with pytest.raises(CheckpointGone, match="removed meanwhile"), checkpoint.as_directory():
            pass
    else:
        with checkpoint.as_directory() as path:
            assert [Path(path, name).read_bytes() for name in NAMES] == [b"first"] * 3
    assert left() == []


@pytest.mark.parametrize("has_manifest", [True, False])
def test_one_that_is_rewritten_during_its_download_is_read_again_and_never_mixed(
    checkpoint: Checkpoint, folder: Path, meanwhile: Meanwhile, has_manifest: bool
) -> None:
    def anew() -> None:
        write(folder, b"second one")
        if not has_manifest:
            (folder / MANIFEST_NAME).unlink()

    if not has_manifest:  # and not ours
        shutil.rmtree(folder.parent.parent / CLAIMS)
        (folder / MANIFEST_NAME).unlink()
    meanwhile(anew)
    with checkpoint.as_directory() as path:
        assert [Path(path, name).read_bytes() for name in NAMES] == [b"second one"] * 3
    assert left() == []
    copy = Path(checkpoint.to_directory())
    assert [(copy / name).read_bytes() for name in NAMES] == [b"second one"] * 3


def test_one_that_changes_without_end_is_given_up(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    async def changing(*_: Any) -> None:
        nonlocal count
        count += 1
        write(folder, b"x" * count)
        raise StorageUnavailable("get", "model.pt", "1 of 5 bytes came")

    monkeypatch.setattr(download, "_download", changing)
    with pytest.raises(FolderChanged, match="rewritten during each attempt"):
        checkpoint.to_directory()
    assert count == 3


def test_one_of_others_needs_no_manifest(distant: Distant) -> None:
    """Ray writes none; neither do people who copy files into a bucket."""
    write(distant.folder / "run" / "trial" / "checkpoint_000000", b"theirs")
    (distant.folder / "run" / "trial" / "checkpoint_000000" / MANIFEST_NAME).unlink()
    for below in ("run/trial/checkpoint_000000", "run"):
        location = distant.location.child(below)
        with Checkpoint.from_location(location).as_directory() as path:
            assert len([file for file in Path(path).rglob("*") if file.is_file()]) == 3


def test_who_may_look_at_nothing_else_reads_what_there_is(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = ArrowStore.list

    async def refused(self: Any, prefix: str = "", **kwargs: Any) -> Any:
        if prefix == CLAIMS:
            raise StorageRefused("list", prefix, "AccessDenied")
        return await listing(self, prefix, **kwargs)

    monkeypatch.setattr(ArrowStore, "list", refused)
    (folder / MANIFEST_NAME).unlink()
    with checkpoint.as_directory() as path:
        assert Path(path, "model.pt").read_bytes() == b"first"


@pytest.mark.server
def test_on_s3_one_other_byte_in_any_range_is_an_error_that_names_the_file(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1000)
    content, folder = os.urandom(4500), tmp_path / "made"
    folder.mkdir()
    write(folder, content)
    (folder / "empty").mkdir()
    manifest.write(folder)
    location = Location.resolve(moto.uri("bucket/remote-readers/ranges"), None, {})

    async def put(name: str, data: bytes) -> None:
        store = location.open_store()
        await store.put(name, data)
        await store.close()

    for name in (*NAMES, MANIFEST_NAME):
        asyncio.run(put(name, (folder / name).read_bytes()))
    copy = Path(Checkpoint.from_location(location).to_directory(tmp_path / "copy"))
    assert {name: (copy / name).read_bytes() for name in NAMES} == dict.fromkeys(NAMES, content)
    assert (copy / "empty").is_dir()
    for at in (0, 2500, 4499):
        asyncio.run(put(NAMES[1], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]))
        with pytest.raises(ManifestMismatch, match=r"model\.pt has a different sha256"):
            Checkpoint.from_location(location).to_directory(tmp_path / "other")
    assert sorted(os.listdir(tmp_path)) == ["copy", "made", "temporary"]


@pytest.mark.parametrize(
    ("path", "levels", "above"),
    [
        ("s3://bucket/a/b/c?region=x", 2, "s3://bucket/a?region=x"),
        ("s3://bucket/b/c", 2, "s3://bucket?region=x"),
        ("s3://bucket/c", 2, None),
        ("/a/b/c/", 2, "/a"),
        ("memory://a/b/c", 2, "/a"),
    ],
)
def test_the_folder_above_is_found_or_there_is_none(
    path: str, levels: int, above: str | None
) -> None:
    found = Location.resolve(path, None, {}).above(levels)
    assert (None if found is None else found.path) == (
        above and above.removeprefix("s3://").partition("?")[0]
    )
