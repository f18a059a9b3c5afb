"""Writing and removing: the old state or the new one, never a part."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast.syncer.files import durable


def test_a_write_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    durable.write_atomic(target, b"old")
    durable.write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_name_of_full_length_can_be_written(tmp_path: Path) -> None:
    durable.write_atomic(tmp_path / ("n" * 255), b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    target = tmp_path / "state.json"
    target.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        durable.write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_the_bytes_are_forced_to_disk_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    replace, fsync = os.replace, os.fsync

    def record_replace(source: str, target: str) -> None:
        done.append("replace")
        replace(source, target)

    def record_fsync(descriptor: int) -> None:
        done.append("fsync")
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", record_replace)
    monkeypatch.setattr(os, "fsync", record_fsync)
    durable.write_atomic(tmp_path / "x", b"x")
    assert done == ["fsync", "replace", "fsync"]


def test_a_folder_that_is_not_forced_to_disk_is_an_error_of_the_write(
    tmp_path: Path, refused_folders: list[str]
) -> None:
    target = tmp_path / "state.json"
    durable.write_atomic(target, b"old")
    refused_folders.append(str(tmp_path))
    with pytest.raises(OSError, match="Input/output error"):
        durable.write_atomic(target, b"new")
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_folder_whose_name_is_not_forced_to_disk_is_an_error(
    tmp_path: Path, refused_folders: list[str]
) -> None:
    refused_folders.append(str(tmp_path))
    for _ in range(2):  # also if it exists by then
        with pytest.raises(OSError, match="Input/output error"):
            durable.make_folder(tmp_path / "made")


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    durable.remove_tree(tmp_path / "nothing")


def test_a_tree_with_read_only_folders_is_removed(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(b"x")
    inner.chmod(0o500)
    durable.remove_tree(tmp_path / "tree")
    assert os.listdir(tmp_path) == []


def test_an_interrupted_removal_is_invisible_and_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "checkpoint_000000"
    tree.mkdir()
    (tree / "file").write_bytes(b"x")

    def killed(path: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            durable.remove_tree(tree)
    assert not tree.exists()
    assert [durable.is_leftover(name) for name in os.listdir(tmp_path)] == [True]
    durable.remove_leftovers_in(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_sweep_leaves_users_files_alone(tmp_path: Path) -> None:
    for name in [".tmp-mine", ".removed-notes.txt", "x"]:
        (tmp_path / name).write_bytes(b"x")
    durable.remove_leftovers_in(tmp_path)
    durable.remove_leftovers_in(tmp_path / "nothing")
    assert len(os.listdir(tmp_path)) == 3


def test_of_a_symlink_only_the_link_is_removed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    durable.remove_tree(tmp_path / "link")
    assert os.listdir(tmp_path) == ["real"]
