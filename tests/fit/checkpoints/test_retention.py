"""Checkpoints: their upload, and those that are superseded while another process reads them."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyarrow.fs import FileSelector

from holdfast import train, tune
from holdfast.cli import main
from holdfast.experiment.control import uploader
from holdfast.experiment.workers.pool import WorkerPool
from holdfast.trial.errors import InvalidMetrics
from tests.rig.faults.ills import Ill, Request, Well
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server


def is_uploader(process: psutil.Process) -> bool:
    try:
        return "holdfast: uploader" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or what another test has left of one
        return False


def test_the_uploader_leaves_the_cores_to_the_trials(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    replied = WorkerPool.reply

    def reply(self: WorkerPool, *args: Any) -> None:
        seen.extend(each.nice() for each in filter(is_uploader, psutil.Process().children()))
        replied(self, *args)

    monkeypatch.setattr(WorkerPool, "reply", reply)

    def train(config: dict[str, Any]) -> None:
        directory = tune.staging_directory()
        Path(directory, "weights").write_text("1")
        checkpoint = tune.Checkpoint.from_directory(directory)
        mode = tune.CheckpointUploadMode.SYNC  # the uploader has worked when this is answered
        tune.report({"nice": os.nice(0)}, checkpoint=checkpoint, checkpoint_upload_mode=mode)

    (result,) = fit(train)
    assert seen == [result.metrics["nice"] + 5]


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        (tune.CheckpointUploadMode.ASYNC, ["answered", "opened"]),
        (tune.CheckpointUploadMode.SYNC, ["opened", "answered"]),
    ],
)
def test_the_first_checkpoint_starts_the_uploader_after_the_answer_unless_that_waits_for_it(
    fit: Any, monkeypatch: pytest.MonkeyPatch, mode: tune.CheckpointUploadMode, order: list[str]
) -> None:
    happened: list[str] = []
    reply, open_uploads = WorkerPool.reply, uploader.open_uploads

    def note_reply(self: WorkerPool, *args: Any) -> None:
        happened.append("answered")
        reply(self, *args)

    def note_opening(*args: Any, **named: Any) -> Any:
        happened.append("opened")
        return open_uploads(*args, **named)

    monkeypatch.setattr(WorkerPool, "reply", note_reply)
    monkeypatch.setattr(uploader, "open_uploads", note_opening)

    def train(config: dict[str, Any]) -> None:
        tune.report({"epoch": 0}, checkpoint=saved(0), checkpoint_upload_mode=mode)

    fit(train)
    assert happened == order


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


def checkpoint_of(text: str) -> tune.Checkpoint:
    directory = tune.staging_directory()
    Path(directory, "weights").write_text(text)
    return tune.Checkpoint.from_directory(directory)


def await_removal(of: str) -> None:
    """Wait until a folder next to the other checkpoints of this trial is renamed or deleted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    above = os.open(".", os.O_RDONLY)
    fcntl.fcntl(above, fcntl.F_NOTIFY, fcntl.DN_RENAME | fcntl.DN_DELETE | fcntl.DN_MULTISHOT)
    while Path(of).exists():
        signal.sigwait({signal.SIGIO})
    os.close(above)


def test_what_a_trial_resumed_from_and_still_reads_outlives_later_checkpoints(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_FSYNC_PERIOD_S", "0.05")

    def train(config: dict[str, Any]) -> None:
        start = tune.get_checkpoint()
        if start is None:
            tune.report({"score": 0}, checkpoint=checkpoint_of("0"))
            raise RuntimeError("a stumble")
        with start.as_directory() as directory:
            for score in (1, 2, 3):
                tune.report({"score": score}, checkpoint=checkpoint_of(f"{score}"))
            await_removal("checkpoint_000001")
            read = Path(directory, "weights").read_text()
            there = sorted(path.name for path in Path().glob("checkpoint_*"))
        tune.report({"read": read, "there": there})

    (result,) = fit(
        train,
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
    )
    assert result.metrics["read"] == "0"
    assert result.metrics["there"][0] == "checkpoint_000000"
    assert [path.name for path in Path(result.path).glob("checkpoint_*")] == ["checkpoint_000003"]


class Reader(tune.Callback):
    """Reads each checkpoint in the script's process, and holds it."""

    def __init__(self) -> None:
        self.held = ExitStack()

    def on_checkpoint(
        self, iteration: int, trials: Any, trial: Any, checkpoint: tune.Checkpoint, **_: Any
    ) -> None:
        self.held.enter_context(checkpoint.as_directory())


def report_three(config: dict[str, Any]) -> None:
    for score in range(3):
        tune.report({"score": score}, checkpoint=checkpoint_of(f"{score}"))


def test_what_is_read_to_the_end_is_reported_and_goes_with_the_next_run(
    fit: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Superseded checkpoints are removed when the journal is synced: at the end, with this long
    # period.
    monkeypatch.setenv("HOLDFAST_FSYNC_PERIOD_S", "30")
    reader = Reader()
    with reader.held:
        (result,) = fit(
            report_three,
            name="run",
            verbose=1,
            callbacks=[reader],
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        )
        folders = sorted(Path(result.path).glob("checkpoint_*"))
        assert [(path / "weights").read_text() for path in folders] == ["0", "1", "2"]
        told = capfd.readouterr().err
        assert "superseded checkpoints could not be removed" in told
        for path in folders[:2]:
            assert f"{path}: it is being read" in told
        assert [found.path for found, _ in result.best_checkpoints] == [str(folders[2])]
    tune.Tuner.restore(str(tmp_path / "results" / "run"), report_three).fit()
    assert list(Path(result.path).glob("checkpoint_*")) == folders[2:]


def test_both_ways_to_make_a_checkpoint_are_where_users_look() -> None:
    for module in (tune, train):
        assert "staging_directory" in dir(module)
        assert "staging_directory()" in (module.Checkpoint.from_directory.__doc__ or "")


class Revoked:
    """The run's credentials allow no deletions."""

    def befalls(self, request: Request) -> Ill | None:
        deletes = request.method == "DELETE" or "delete" in request.path.partition("?")[2]
        return Ill.FORBIDDEN if deletes else None


@pytest.mark.server
def test_a_bucket_that_refuses_deletions_is_reported_and_no_error_of_the_run(
    fit: Any, moto: S3Server, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy = Proxy(moto.endpoint)
    uri = moto.uri("bucket/revoked").replace(moto.endpoint, proxy.endpoint)

    class Revoke(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            proxy.strike(Revoked())

    config = tune.CheckpointConfig(num_to_keep=1)
    settings = {"storage_path": uri, "name": "run", "checkpoint_config": config}
    try:
        (result,) = fit(report_three, callbacks=[Revoke()], verbose=1, **settings)
        told = capfd.readouterr().err
        assert "AccessDenied" in told
        assert told.count("Cannot delete the superseded checkpoint") == 1
        assert "could not be removed. A restore of the experiment" in told
        proxy.strike(Well())
        tune.Tuner.restore(
            f"{uri.partition('?')[0]}/run?{uri.partition('?')[2]}", report_three
        ).fit()
        folder = result.checkpoint.filesystem.get_file_info(FileSelector(result.path))
        assert [i.base_name for i in folder if "checkpoint" in i.base_name] == [
            "checkpoint_000002"
        ]
    finally:
        proxy.close()
