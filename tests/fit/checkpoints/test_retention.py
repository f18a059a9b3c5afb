"""Checkpoints that are superseded while another process reads them, in real runs."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector

from holdfast import train, tune
from tests.rig.faults.fault_proxy import FaultProxy
from tests.rig.faults.ills import Ill, Request, Well
from tests.rig.storage.s3_server import S3Server


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
    proxy = FaultProxy(moto.endpoint)
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
