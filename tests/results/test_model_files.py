"""A checkpoint in a directory of the user's: all of it, with what explains it, or nothing."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from holdfast.results.tables import about_trial, copy_checkpoint
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.errors import DirectoryMissing, ManifestMismatch, StorageRefused
from holdfast.trial.errors import InvalidConfig


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A committed checkpoint, one file of which has the name of an explanation."""
    folder = tmp_path / "checkpoint_000003"
    (folder / "layers").mkdir(parents=True)
    (folder / "layers" / "0.bin").write_bytes(bytes(1_000))
    (folder / "params.json").write_text('{"vocab": 3}')
    manifest.write(folder)
    return folder


def test_the_files_are_copied_without_the_manifest_and_with_what_explains_them(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out" / "model"
    about = about_trial({"lr": 0.1}, {"loss": float("nan")})
    done = copy_checkpoint(Checkpoint(source), str(target), about=about)
    assert (done.directory, done.files, done.size_bytes) == (str(target), 2, 1_012)
    assert sorted(os.listdir(target)) == [
        "layers", "metrics.json", "params.json", "trial-params.json",
    ]  # fmt: skip
    assert json.loads((target / "params.json").read_text()) == {"vocab": 3}
    assert json.loads((target / "trial-params.json").read_text()) == {"lr": 0.1}
    assert json.loads((target / "metrics.json").read_text()) == {"loss": None}
    assert os.listdir(target.parent) == ["model"]


def test_an_empty_directory_is_filled_and_another_is_left_alone(
    source: Path, tmp_path: Path
) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "mine").touch()
    (tmp_path / "link").symlink_to(empty)
    copy_checkpoint(Checkpoint(source), str(empty))
    assert sorted(os.listdir(empty)) == ["layers", "params.json"]
    for taken, why in ((full, "is not empty"), (full / "mine", "is not a directory")):
        with pytest.raises(InvalidConfig, match=why):
            copy_checkpoint(Checkpoint(source), str(taken))
    with pytest.raises(InvalidConfig, match="is not a directory"):
        copy_checkpoint(Checkpoint(source), str(tmp_path / "link"))
    assert os.listdir(full) == ["mine"]


def test_changed_bytes_and_a_checkpoint_that_is_gone_leave_nothing(
    source: Path, tmp_path: Path
) -> None:
    (source / "layers" / "0.bin").write_bytes(bytes(999) + b"1")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ManifestMismatch, match=r"layers/0\.bin differs"):
        copy_checkpoint(Checkpoint(source), str(tmp_path / "model"))
    gone = Checkpoint(tmp_path / "checkpoint_000001")
    with pytest.raises(DirectoryMissing):
        copy_checkpoint(gone, str(tmp_path / "model"))
    assert sorted(os.listdir(tmp_path)) == before


def test_one_that_was_never_committed_is_copied_as_it_is(source: Path, tmp_path: Path) -> None:
    (source / ".holdfast.json").unlink()
    assert copy_checkpoint(Checkpoint(source), str(tmp_path / "model")).files == 2


def test_a_disk_that_cannot_be_written_is_named_by_the_path_that_the_user_gave(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the removal of what was never written fails there, and must not hide the reason."""

    def refuses(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", refuses)
    monkeypatch.setattr(os, "rename", refuses)
    with pytest.raises(StorageRefused) as caught:
        copy_checkpoint(Checkpoint(source), str(tmp_path / "model"))
    assert str(caught.value).startswith(
        f"cannot write a checkpoint to {tmp_path}/model: Read-only"
    )
