"""`report()` waits until storage has a checkpoint, or keeps it out of storage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.cli import main
from holdfast.trial.errors import InvalidMetrics

MANIFEST = ".holdfast.json"


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let runs work in their own directory; returns the storage, which is another one."""
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / "here"))
    return tmp_path / "results"


def saved(epoch: int) -> tune.Checkpoint:
    directory = tune.staging_directory()
    Path(directory, "epoch").write_text(str(epoch))
    return tune.Checkpoint.from_directory(directory)


def resumed() -> int:
    checkpoint = tune.get_checkpoint()
    return int(Path(checkpoint.path, "epoch").read_text()) if checkpoint else 0


def in_storage(number: int) -> Path:
    context = tune.get_context()
    trial = Path(context.get_storage(), Path(context.get_trial_dir()).name)
    return trial / f"checkpoint_{number:06d}" / MANIFEST


@pytest.mark.parametrize("mode", [train.CheckpointUploadMode.SYNC, "SYNC"])
def test_a_synchronous_checkpoint_is_in_storage_when_report_returns(
    fit: Any, mirrored: Path, mode: Any
) -> None:
    def trainable(config: dict[str, Any]) -> None:
        for epoch in range(3):
            tune.report({"epoch": epoch}, checkpoint=saved(epoch), checkpoint_upload_mode=mode)
            assert in_storage(epoch).exists()

    (result,) = fit(trainable)
    assert result.error is None


def test_where_the_directory_is_the_storage_a_synchronous_checkpoint_is_on_the_disk(
    fit: Any,
) -> None:
    def trainable(config: dict[str, Any]) -> None:
        mode = tune.CheckpointUploadMode.SYNC
        tune.report({"epoch": 0}, checkpoint=saved(0), checkpoint_upload_mode=mode)
        assert in_storage(0).exists()

    (result,) = fit(trainable)
    assert result.error is None


def test_a_report_whose_checkpoint_does_not_get_to_storage_raises_and_it_stays_here(
    fit: Any, mirrored: Path
) -> None:
    def trainable(config: dict[str, Any]) -> None:
        shutil.rmtree(tune.get_context().get_storage())
        try:
            mode = tune.CheckpointUploadMode.SYNC
            tune.report({"epoch": 1}, checkpoint=saved(1), checkpoint_upload_mode=mode)
        except tune.TuneError as error:
            Path("told").write_text(str(error))
            assert Path(tune.get_context().get_trial_dir(), "checkpoint_000000").exists()
        raise LookupError("seen")

    with pytest.raises(tune.TuneError, match="is not in"):
        fit(trainable, sync_config=tune.SyncConfig(sync_timeout=1))
    (told,) = (mirrored.parent / "here").rglob("told")
    assert "on this machine and not in storage" in told.read_text()


def test_a_checkpoint_that_is_kept_from_storage_serves_here_and_not_elsewhere(
    fit: Any, mirrored: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every third one is uploaded; the run ends in an error after the fifth."""

    def trainable(config: dict[str, Any]) -> None:
        start = resumed()
        for epoch in range(start + 1, 8):
            if epoch == 6 and not config["diary"].exists():
                raise RuntimeError("oh no")
            mode = tune.CheckpointUploadMode[("SYNC", "NO_UPLOAD", "NO_UPLOAD")[epoch % 3]]
            row = {"epoch": epoch, "start": start}
            tune.report(row, checkpoint=saved(epoch), checkpoint_upload_mode=mode)

    diary = tmp_path / "diary"
    keep = tune.CheckpointConfig(num_to_keep=1)
    (failed,) = fit(trainable, {"diary": diary}, name="run", checkpoint_config=keep)
    assert failed.error is not None
    there = sorted(path.parent.name for path in (mirrored / "run").rglob(MANIFEST))
    assert there == ["checkpoint_000002"]
    for command in ([], ["sync"]):  # the doctor misses nothing there, and brings nothing
        assert main(["doctor", *command, str(mirrored / "run")]) == 0
    assert there == sorted(path.parent.name for path in (mirrored / "run").rglob(MANIFEST))
    diary.touch()
    shutil.copytree(tmp_path / "here", tmp_path / "kept here")

    def started_from() -> Any:
        path = str(mirrored / "run")
        restored = tune.Tuner.restore(path, trainable, resume_errored=True, param_space=space)
        return (restored.fit()[0].metrics or {})["start"]

    space = {"diary": diary}
    shutil.copytree(mirrored, tmp_path / "kept there")
    assert started_from() == 5
    shutil.rmtree(mirrored)
    shutil.rmtree(tmp_path / "here")
    shutil.copytree(tmp_path / "kept there", mirrored)
    assert started_from() == 3  # another machine has the third only


def test_a_mode_that_there_is_not_is_named(fit: Any) -> None:
    def trainable(config: dict[str, Any]) -> None:
        with pytest.raises(InvalidMetrics, match=r"ASYNC, SYNC or NO_UPLOAD.*'later'"):
            tune.report({"x": 1}, checkpoint=saved(1), checkpoint_upload_mode="later")
        with pytest.raises(InvalidMetrics, match="NO_UPLOAD keeps a checkpoint on this machine"):
            tune.report(
                {"x": 1},
                checkpoint=tune.Checkpoint("s3://bucket/elsewhere"),
                checkpoint_upload_mode=tune.CheckpointUploadMode.NO_UPLOAD,
            )
        tune.report({"x": 2})

    (result,) = fit(trainable)
    assert (result.error, result.metrics["x"]) == (None, 2)
