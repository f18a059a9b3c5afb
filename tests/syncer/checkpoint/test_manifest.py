"""A manifest distinguishes a complete checkpoint from any other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.errors import (
    ManifestMismatch,
    NotStored,
    StorageError,
    UnusableFile,
)
from holdfast.syncer.files.tree import MANIFEST_NAME, METADATA_NAME


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "nested" / "deeper").mkdir(parents=True)
    (folder / "empty" / "too").mkdir(parents=True)
    (folder / "model.pt").write_bytes(os.urandom(70_000))
    (folder / "nested" / "deeper" / "naïve name 模型\n.bin").write_bytes(b"odd")
    (folder / "nothing").write_bytes(b"")
    return folder


def test_a_written_manifest_verifies_and_reads_back(checkpoint: Path) -> None:
    written = manifest.write(checkpoint)
    assert manifest.verify(checkpoint, deep=True) == written == manifest.load(checkpoint)
    assert written.total_bytes == 70_003
    assert written.empty_folders == ("empty/too",)
    assert set(written.files) == {
        "model.pt",
        "nothing",
        "nested/deeper/naïve name 模型\n.bin",
    }


def test_the_manifest_is_not_a_part_of_what_it_describes(checkpoint: Path) -> None:
    assert manifest.write(checkpoint) == manifest.write(checkpoint)
    (checkpoint / ".tmp-0123456789abcdef").write_bytes(b"what a crash left")
    assert manifest.hash_directory(checkpoint) == manifest.load(checkpoint)


def test_without_a_manifest_nothing_was_committed(checkpoint: Path) -> None:
    with pytest.raises(NotStored, match="never committed"):
        manifest.verify(checkpoint)


def test_a_missing_a_shorter_and_a_changed_file_are_each_named(checkpoint: Path) -> None:
    manifest.write(checkpoint)
    model = bytearray((checkpoint / "model.pt").read_bytes())
    model[35_000] ^= 1
    (checkpoint / "model.pt").write_bytes(model)
    manifest.verify(checkpoint)
    with pytest.raises(ManifestMismatch, match=r"model\.pt has a different sha256 checksum"):
        manifest.verify(checkpoint, deep=True)
    (checkpoint / "model.pt").write_bytes(model[:-1])
    (checkpoint / "nothing").unlink()
    with pytest.raises(ManifestMismatch) as caught:
        manifest.verify(checkpoint)
    assert sorted(caught.value.problems) == [
        "model.pt has 69999 bytes instead of 70000",
        "nothing is missing",
    ]


def test_any_flipped_bit_of_the_manifest_itself_is_noticed(checkpoint: Path) -> None:
    manifest.write(checkpoint)
    path = checkpoint / MANIFEST_NAME
    whole = path.read_bytes()
    names_and_sizes = whole.index(b'"files"')
    for position in range(names_and_sizes, len(whole) - 80, 7):
        damaged = bytearray(whole)
        damaged[position] ^= 2
        path.write_bytes(damaged)
        try:
            same = json.loads(damaged) == json.loads(whole)
        except ValueError:
            same = False
        if not same:
            with pytest.raises(ManifestMismatch):
                manifest.verify(checkpoint, deep=True)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2, "files": {}}', b'{"version": 1, "files": []}']
)
def test_a_damaged_or_newer_manifest_is_refused(checkpoint: Path, content: bytes) -> None:
    (checkpoint / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(ManifestMismatch, match="manifest"):
        manifest.load(checkpoint)


PROGRESS = TrialProgress(trial_id="t1", iteration=3, time_total_s=1.25)


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        [],
        "t1",
        {},
        {"trial_id": 1},
        {"trial_id": None},
        {"training_iteration": -1},
        {"training_iteration": True},
        {"training_iteration": 3.0},
        {"training_iteration": "3"},
        {"training_iteration": 10**400},
        {"time_total_s": -1},
        {"time_total_s": True},
        {"time_total_s": "1"},
        {"time_total_s": 10**400},
        {"time_total_s": float("nan")},
        {"time_total_s": float("inf")},
    ],
)
def test_what_no_run_has_written_of_the_trial_counts_as_nothing(
    checkpoint: Path, hostile: Any
) -> None:
    """No byte depends on it: the checkpoint is unchanged."""
    manifest.write(checkpoint, progress=PROGRESS)
    path = checkpoint / MANIFEST_NAME
    document = json.loads(path.read_bytes())
    known = document["reached"]
    document["reached"] = (
        {**known, **hostile} if isinstance(hostile, dict) and hostile else hostile
    )
    path.write_text(json.dumps(document))
    assert manifest.verify(checkpoint, deep=True).progress is None


def test_metadata_may_change_after_the_commit_but_not_vanish(checkpoint: Path) -> None:
    (checkpoint / METADATA_NAME).write_bytes(b"{}")
    manifest.write(checkpoint)
    (checkpoint / METADATA_NAME).write_bytes(b'{"accuracy": 0.9}')
    manifest.verify(checkpoint, deep=True)
    (checkpoint / METADATA_NAME).unlink()
    with pytest.raises(ManifestMismatch, match="metadata"):
        manifest.verify(checkpoint)


def test_a_symlink_counts_as_what_it_leads_to(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "big").write_bytes(b"12345")
    (checkpoint / "last.pt").symlink_to("model.pt")
    (checkpoint / "outside").symlink_to(tmp_path / "elsewhere")
    made = manifest.hash_directory(checkpoint)
    assert made.files["last.pt"] == made.files["model.pt"]
    assert made.files["outside/big"].size == 5


@pytest.mark.parametrize("target", [".", "..", "nested"])
def test_a_symlink_that_leads_back_is_named(checkpoint: Path, target: str) -> None:
    (checkpoint / "nested" / "deeper" / "loop").symlink_to(checkpoint / target)
    with pytest.raises(UnusableFile, match="nested/deeper/loop: this symlink leads to a folder"):
        manifest.hash_directory(checkpoint)


def test_two_links_to_one_folder_are_no_loop(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x").write_bytes(b"x")
    (tmp_path / "a").mkdir()
    for name in ["one", "two"]:
        (tmp_path / "a" / name).symlink_to(tmp_path / "shared")
    assert set(manifest.hash_directory(tmp_path / "a").files) == {"one/x", "two/x"}


def test_a_dangling_symlink_is_named(checkpoint: Path) -> None:
    (checkpoint / "gone").symlink_to("no such file")
    with pytest.raises(UnusableFile, match="gone: this symlink points to 'no such file'"):
        manifest.hash_directory(checkpoint)


def test_a_pipe_is_named_and_not_waited_for(checkpoint: Path) -> None:
    os.mkfifo(checkpoint / "pipe")
    with pytest.raises(UnusableFile, match="pipe: this is not a regular file"):
        manifest.hash_directory(checkpoint)


def test_a_name_that_is_not_utf8_is_shown(checkpoint: Path) -> None:
    os.close(os.open(os.fsencode(checkpoint) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    with pytest.raises(UnusableFile, match=r"b'caf\\xe9' is not UTF-8"):
        manifest.hash_directory(checkpoint)


def test_every_file_and_folder_is_forced_to_disk_before_the_manifest(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    manifest.write(checkpoint)
    before_manifest = synced[: next(i for i, name in enumerate(synced) if ".tmp-" in name)]
    assert {"model.pt", "nothing", "deeper", "nested", "empty", "too", "checkpoint"} <= set(
        before_manifest
    )


def test_a_full_disk_is_reported_as_a_storage_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left"):
        manifest.write(checkpoint)
    with pytest.raises(NotStored):
        manifest.load(checkpoint)
