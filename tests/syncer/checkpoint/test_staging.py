"""Staging takes a user's directory completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.staging import stage
from holdfast.syncer.errors import (
    AlreadyStored,
    DirectoryMissing,
    StorageUnavailable,
    UnusableFile,
)
from holdfast.syncer.files.tree import MANIFEST_NAME, STAGED_NAME


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "model.bin").write_bytes(os.urandom(3_000_000))
    (folder / "sub" / "script.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "sub" / "script.sh").chmod(0o751)
    os.utime(folder / "model.bin", ns=(1, 1_600_000_000_123_456_789))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "experiment" / ".staging"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "experiment" / "trial" / "checkpoint_000000"


def _content(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if path.name != STAGED_NAME
    }


def test_the_target_has_what_the_source_has(source: Path, target: Path, root: Path) -> None:
    staged = stage(source, target, staging_root=root)
    assert (staged.files, staged.bytes) == (2, 3_000_010)
    assert _content(target) == _content(source)
    assert os.listdir(root) == []


def test_modes_and_times_are_kept(source: Path, target: Path, root: Path) -> None:
    stage(source, target, staging_root=root)
    assert (target / "sub" / "script.sh").stat().st_mode & 0o777 == 0o751
    assert (target / "model.bin").stat().st_mtime_ns == 1_600_000_000_123_456_789


def test_a_source_in_the_staging_folder_is_renamed_and_not_copied(
    source: Path, target: Path, root: Path
) -> None:
    root.mkdir(parents=True)
    inside = source.rename(root / "mine")
    before = (inside / "model.bin").stat().st_ino
    staged = stage(inside, target, staging_root=root)
    assert (staged.files, staged.bytes) == (2, 3_000_010)
    assert (target / "model.bin").stat().st_ino == before
    assert not inside.exists()


@pytest.mark.parametrize("how", ["through", "outside", "beside", "checkpoint"])
def test_what_a_link_leads_to_is_copied_and_stays_as_it_is(
    source: Path, target: Path, root: Path, how: str
) -> None:
    root.mkdir(parents=True)
    link = root / "latest"
    match how:
        case "through":
            link.symlink_to(source.parent)
            link = link / "source"
        case "outside":
            link.symlink_to(source)
        case "beside":
            source = source.rename(root / "mine")
            link.symlink_to("mine")
        case _:  # the trial's own newest one
            target.parent.mkdir()
            source = source.rename(target.with_name("checkpoint_000009"))
            link.symlink_to(source)
    content = _content(source)
    staged = stage(link, target, staging_root=root)
    assert (staged.files, staged.bytes) == (2, 3_000_010)
    assert not target.is_symlink()
    manifest.write(target, manifest.hash_directory(target))
    assert _content(source) == content


def test_links_in_a_staging_folder_do_not_stay_links(
    source: Path, target: Path, root: Path
) -> None:
    (source.parent / "weights").write_bytes(b"from elsewhere")
    (source / "link").symlink_to(source.parent / "weights")
    root.mkdir(parents=True)
    stage(source.rename(root / "mine"), target, staging_root=root)
    assert not (target / "link").is_symlink()
    assert (target / "link").read_bytes() == b"from elsewhere"


@pytest.mark.parametrize("in_root", [True, False])
def test_a_manifest_of_an_earlier_life_is_left_behind(
    source: Path, target: Path, root: Path, in_root: bool
) -> None:
    manifest.write(source)
    root.mkdir(parents=True)
    stage(source.rename(root / "mine") if in_root else source, target, staging_root=root)
    assert not (target / MANIFEST_NAME).exists()


def test_an_empty_directory_is_a_checkpoint(tmp_path: Path, target: Path, root: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert stage(tmp_path / "nothing", target, staging_root=root).files == 0
    assert target.is_dir()


def test_a_read_only_directory_can_be_staged_and_gets_its_manifest(
    source: Path, target: Path, root: Path
) -> None:
    source.chmod(0o500)
    stage(source, target, staging_root=root)
    source.chmod(0o700)
    assert target.stat().st_mode & 0o777 == 0o700


def test_a_source_that_is_missing_or_a_file_is_named(
    tmp_path: Path, target: Path, root: Path
) -> None:
    with pytest.raises(DirectoryMissing, match="nowhere: this directory does not exist"):
        stage(tmp_path / "nowhere", target, staging_root=root)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(UnusableFile, match="file: this is not a directory"):
        stage(tmp_path / "file", target, staging_root=root)


def test_a_target_that_exists_is_never_replaced(source: Path, target: Path, root: Path) -> None:
    target.mkdir(parents=True)
    with pytest.raises(AlreadyStored, match="checkpoint_000000"):
        stage(source, target, staging_root=root)
    assert os.listdir(target) == []


def test_the_trial_directory_itself_is_not_a_checkpoint(target: Path, root: Path) -> None:
    target.parent.mkdir(parents=True)
    with pytest.raises(UnusableFile, match="stored inside itself"):
        stage(target.parent, target, staging_root=root)


def test_a_full_disk_leaves_neither_target_nor_half_copy(
    source: Path, target: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "copy_file_range", full, raising=False)
    with pytest.raises(StorageUnavailable, match="No space left on device"):
        stage(source, target, staging_root=root)
    assert not target.exists()
    assert os.listdir(root) == []


@pytest.mark.parametrize("number", [18, 22, 38, 95])
def test_where_the_kernel_cannot_copy_a_buffer_does(
    source: Path, target: Path, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def not_here(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", not_here, raising=False)
    stage(source, target, staging_root=root)
    assert _content(target) == _content(source)


def test_a_kernel_that_copies_nothing_is_not_believed(
    source: Path, target: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0, raising=False)
    stage(source, target, staging_root=root)
    assert _content(target) == _content(source)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_are_kept_whatever_the_umask_takes(
    source: Path, target: Path, root: Path, umask: int
) -> None:
    modes = [0o444, 0o644, 0o666, 0o777, 0o4755]
    for mode in modes:
        for twin in "ab":
            (source / f"{mode:o}{twin}").write_bytes(b"x")
            (source / f"{mode:o}{twin}").chmod(mode)
    before = os.umask(umask)
    try:
        stage(source, target, staging_root=root)
    finally:
        os.umask(before)
    kept = {
        (target / f"{mode:o}{twin}").stat().st_mode & 0o7777 for mode in modes for twin in "ab"
    }
    assert kept == set(modes)
