"""A file whose fsync has failed is written again before its checkpoint is committed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.errors import DiskSilent, NoAnswer, StorageUnavailable
from holdfast.syncer.files import forcing
from holdfast.syncer.files.forcing import BytesLost
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.answers import commit_of, rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "trial" / "checkpoint_000000"
    (made / "inside").mkdir(parents=True)
    (made / "weights").write_bytes(b"weights" * 1000)
    (made / "weights").chmod(0o640)
    (made / "inside" / "more").write_bytes(b"more")
    return made


class Disk:
    """Refuses this many files, and records those that it accepted."""

    def __init__(self) -> None:
        self.refuses = 0
        self.refusal = OSError(errno.EIO, os.strerror(errno.EIO))
        self.forced: list[int] = []
        self.on_refusal: Callable[[], object] = lambda: None

    def fsync(self, descriptor: int, size_bytes: int) -> None:
        if self.refuses:
            self.refuses -= 1
            self.on_refusal()
            raise self.refusal
        self.forced.append(os.fstat(descriptor).st_ino)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(forcing, "fsync_file", made.fsync)
    return made


def inodes(folder: Path) -> set[int]:
    return {path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


def test_a_file_for_which_no_answer_came_is_rewritten_too(folder: Path, disk: Disk) -> None:
    """The late answer may have been an error, which Linux reports only once."""
    before = inodes(folder)
    disk.refuses, disk.refusal = 1, NoAnswer(errno.ETIMEDOUT, "the disk has not answered")
    with pytest.raises(DiskSilent):
        manifest.hash_directory(folder)
    assert inodes(folder) == before
    manifest.hash_directory(folder)
    assert len(inodes(folder) & before) == 1


def test_a_file_that_was_refused_once_is_another_file_afterwards(folder: Path, disk: Disk) -> None:
    before = {
        path: (path.read_bytes(), path.stat()) for path in folder.rglob("*") if path.is_file()
    }
    disk.refuses = 1
    manifest.write(folder)
    assert inodes(folder) - {(folder / ".holdfast.json").stat().st_ino} <= set(disk.forced)
    for path, (data, facts) in before.items():
        assert path.read_bytes() == data
        assert path.stat().st_mode == facts.st_mode
        assert path.stat().st_mtime_ns == facts.st_mtime_ns
    changed = [path for path, (_, facts) in before.items() if path.stat().st_ino != facts.st_ino]
    assert len(changed) == 1
    manifest.verify(folder, deep=True)
    assert not list(folder.rglob(".tmp-*"))


def test_a_retry_that_gets_no_error_does_not_believe_it(folder: Path, disk: Disk) -> None:
    before = inodes(folder)
    # Their inode numbers are not reused while they are open.
    held = [path.open() for path in folder.rglob("*") if path.is_file()]
    disk.refuses = 2
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        manifest.write(folder)
    assert not (folder / ".holdfast.json").exists()
    assert inodes(folder) == before
    manifest.write(folder)
    assert len(inodes(folder) & before) == 1
    assert inodes(folder) - {(folder / ".holdfast.json").stat().st_ino} <= set(disk.forced)
    for file in held:
        file.close()


def test_bytes_that_are_not_those_any_more_are_lost(folder: Path, disk: Disk) -> None:
    refused = folder / "weights"
    disk.refuses = 1
    (folder / "inside" / "more").unlink()
    disk.on_refusal = lambda: refused.write_bytes(bytes(7000))
    with pytest.raises(BytesLost, match=r"weights: the disk refused it"):
        manifest.write(folder)
    assert not (folder / ".holdfast.json").exists()


@pytest.mark.anyio
async def test_the_uploader_says_that_such_a_checkpoint_is_lost(
    folder: Path, disk: Disk, tmp_path: Path
) -> None:
    told: list[list[Any]] = []
    settings = UploaderSettings(
        root=tmp_path,
        storage=None,
        experiment_id="an experiment",
        journal="journal",
        head="head.json",
        is_record=lambda key: False,
        is_checkpoint=lambda key: True,
    )
    uploader = Uploader(settings, rows(told))
    disk.refuses = 1
    (folder / "inside" / "more").unlink()
    disk.on_refusal = lambda: (folder / "weights").write_bytes(b"stale")
    await uploader.commit(commit_of("t0", 0, "trial/checkpoint_000000"))
    ((what, trial, index, why),) = told
    assert (what, trial, index) == ("lost", "t0", 0)
    assert "memory no longer has its bytes" in why


@pytest.mark.anyio
async def test_the_uploader_commits_one_that_could_be_rewritten(
    folder: Path, disk: Disk, tmp_path: Path
) -> None:
    told: list[list[Any]] = []
    settings = UploaderSettings(
        root=tmp_path,
        storage=None,
        experiment_id="an experiment",
        journal="journal",
        head="head.json",
        is_record=lambda key: False,
        is_checkpoint=lambda key: True,
    )
    disk.refuses = 1
    await Uploader(settings, rows(told)).commit(commit_of("t0", 0, "trial/checkpoint_000000"))
    assert told == [["committed", "t0", 0]]


def test_a_folder_that_is_refused_is_an_error_like_any_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(manifest, "fsync_dir", refuse)
    with pytest.raises(StorageUnavailable, match=r"force to the disk .*Input/output error"):
        manifest.write(folder)
    assert not (folder / ".holdfast.json").exists()
