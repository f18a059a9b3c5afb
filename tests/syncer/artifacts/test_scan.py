"""What a walk through an experiment's folders finds, and what it skips."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder.layout import is_checkpoint
from holdfast.syncer.artifacts.scan import scan
from holdfast.syncer.artifacts.settings import FolderScan, UploaderSettings


def _is_record(key: str) -> bool:
    return key in ("trial/stdout", "tuner.pkl")


@pytest.fixture
def settings(tmp_path: Path) -> UploaderSettings:
    root = tmp_path / "run"
    (root / "trial").mkdir(parents=True)
    return UploaderSettings(
        root=root,
        storage=None,
        experiment_id="x",
        journal="journal",
        head="head.json",
        is_record=_is_record,
        is_checkpoint=is_checkpoint,
        private=(".lock",),
        private_inside=(".staging",),
    )


def write(settings: UploaderSettings, *keys: str) -> None:
    for key in keys:
        path = settings.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(key)


def artifacts(settings: UploaderSettings, folder: str = "trial") -> FolderScan:
    return scan(settings, folder, "artifacts")


def test_records_lie_at_the_top_of_a_folder_and_all_else_is_an_artifact(
    settings: UploaderSettings,
) -> None:
    write(settings, "tuner.pkl", "mine.csv", "trial/stdout", "trial/log", "trial/deep/stdout")
    assert set(scan(settings, "trial", "records").files) == {"trial/stdout"}
    assert set(artifacts(settings).files) == {"trial/log", "trial/deep/stdout"}
    assert set(scan(settings, "", "records").files) == {"tuner.pkl"}
    assert set(artifacts(settings, "").files) == {"mine.csv"}


def test_holdfasts_files_are_not_artifacts_and_those_that_look_alike_are(
    settings: UploaderSettings,
) -> None:
    ours = [
        "trial/checkpoint_000003/model",
        "trial/checkpoint_1000000/model",
        "trial/.staging/x",
        "trial/.tmp-0123456789abcdef",
        "trial/deep/.tmp-0123456789abcdef/x",
        "trial/.stored.json",
        "trial/.artifacts.json",
    ]
    theirs = [
        "trial/checkpoint_best/model",
        "trial/checkpoint_500/model",
        "trial/deep/checkpoint_000003/model",
        "trial/checkpoint_000004",
        "trial/.hydra/config.yaml",
        "trial/.hidden",
        "trial/journal/000000.log",
        "trial/deep/.staging/x",
        "trial/head.json",
        "trial/.tmp-mine",
    ]
    write(settings, *ours, *theirs)
    assert set(artifacts(settings).files) == set(theirs)
    assert artifacts(settings).skipped == {}


def test_a_name_that_is_not_text_is_skipped(settings: UploaderSettings) -> None:
    (settings.root / os.fsdecode(b"trial/caf\xe9")).write_text("x")
    write(settings, "trial/other")
    found = artifacts(settings)
    assert set(found.files) == {"trial/other"}
    assert list(found.skipped.values()) == ["its name is not UTF-8, which storage requires"]
    assert all(key.isascii() for key in found.skipped)


def test_a_link_to_a_file_of_the_trial_is_a_file(settings: UploaderSettings) -> None:
    write(settings, "trial/epoch_7", "trial/checkpoint_000003/model")
    (settings.root / "trial/best").symlink_to("epoch_7")
    (settings.root / "trial/newest").symlink_to("checkpoint_000003/model")
    found = artifacts(settings)
    assert set(found.files) == {"trial/epoch_7", "trial/best", "trial/newest"}
    assert found.files["trial/best"] == found.files["trial/epoch_7"]


def test_a_link_to_a_folder_of_the_trial_is_not_walked_twice_and_makes_no_loop(
    settings: UploaderSettings,
) -> None:
    write(settings, "trial/runs/1/log")
    (settings.root / "trial/latest").symlink_to("runs/1")
    (settings.root / "trial/runs/1/up").symlink_to("../..")
    found = artifacts(settings)
    assert set(found.files) == {"trial/runs/1/log"}
    assert found.skipped == {}


def test_a_link_out_of_the_trial_is_not_followed(
    settings: UploaderSettings, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "images").write_text("100 GB")
    write(settings, "other/file", "trial-2/file")
    targets: dict[str, str | Path] = {
        "data": tmp_path / "data",
        "images": tmp_path / "data" / "images",
        "sibling": "../trial-2/file",
        "dangling": "nothing",
        "itself": "itself",
    }
    for name, target in targets.items():
        (settings.root / "trial" / name).symlink_to(target)
    found = artifacts(settings)
    assert found.files == {}
    out = "this link leads out of the trial's folder, to "
    assert found.skipped == {
        "trial/data": f"{out}'{tmp_path}/data'",
        "trial/images": f"{out}'{tmp_path}/data/images'",
        "trial/sibling": f"{out}'{settings.root}/trial-2/file'",
        "trial/dangling": "this link leads nowhere ('nothing')",
        "trial/itself": "this link leads nowhere ('itself')",
    }


def test_pipes_sockets_and_devices_are_skipped(settings: UploaderSettings) -> None:
    os.mkfifo(settings.root / "trial" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(settings.root / "trial")
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        (settings.root / "trial" / "null").symlink_to("pipe")
        found = artifacts(settings)
    assert found.files == {}
    assert set(found.skipped) == {"trial/pipe", "trial/socket", "trial/null"}
    assert "not a regular file" in found.skipped["trial/pipe"]


def test_a_folder_that_cannot_be_read_hides_what_is_in_it(
    settings: UploaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(settings, "trial/closed/a", "trial/open/b")
    real = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = artifacts(settings)
    assert set(found.files) == {"trial/open/b"}
    assert found.skipped == {"trial/closed": "this folder cannot be read (permission denied)"}
    assert found.hides("trial/closed/a")


def test_another_file_system_is_not_entered(
    settings: UploaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(settings, "trial/a")
    write(settings, "trial/mounted/a")
    real, there = os.stat, str(settings.root / "trial")

    def elsewhere(path: Any, *args: Any, **options: Any) -> os.stat_result:
        facts = real(path, *args, **options)
        return os.stat_result((*facts[:2], -1, *facts[3:])) if str(path) == there else facts

    monkeypatch.setattr(os, "stat", elsewhere)
    found = artifacts(settings)
    assert found.skipped == {"trial/mounted": "another file system is mounted there"}
    assert set(found.files) == {"trial/a"}
