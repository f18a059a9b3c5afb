"""The results of `fit()` are read again on another machine, by a URI that somebody has pasted."""

from __future__ import annotations

import csv
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast import train, tune
from holdfast.cli import main
from holdfast.train import DataParallelTrainer
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]

NAME = "my 50%41 runs #1?&+ü"


def learn(config: dict[str, Any]) -> None:
    for epoch in range(2):
        folder = tune.staging_directory()
        Path(folder, "model.txt").write_text(f"{config['lr']} {epoch}")
        loss = config["lr"] / (epoch + 1)
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))


@pytest.fixture
def machine(tmp_path: Path, moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this process one of a machine with nothing on its disk."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def use(name: str) -> None:
        monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / name))

    return use


def test_the_path_of_a_result_in_a_bucket_is_read_where_it_was_used_last(
    fit: Any, moto: S3Server, machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("first")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    grid = fit(learn, {"lr": 0.1}, name="read", storage_path=moto.uri("bucket/paths"))
    assert grid[0].path.startswith("bucket/paths/read/")
    assert f"uri={grid[0].uri!r}" in repr(grid[0])
    assert tune.load(grid[0].path)[0].metrics == grid[0].metrics


def test_a_pasted_uri_is_the_experiment_trial_or_checkpoint_wherever_it_is_pasted(
    fit: Any,
    moto: S3Server,
    machine: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    machine("first")
    grid = fit(
        learn,
        {"lr": tune.grid_search([0.1, 0.2])},
        tune.TuneConfig(metric="loss", mode="min"),
        name=NAME,
        storage_path=moto.uri("bucket/later on"),
    )
    assert grid.experiment_path == f"bucket/later on/{NAME}"
    best = grid.best
    assert best.checkpoint is not None
    uris = [grid.uri, best.uri, best.checkpoint.uri]
    assert uris[0] == (
        "s3://bucket/later%20on/my%2050%2541%20runs%20%231%3F&+%C3%BC"
        f"?endpoint_override={moto.endpoint}"
    )
    for uri in uris:
        assert moto.secret_key not in uri.replace(moto.endpoint, "")
        assert uri.isascii()
    for name in ("first", "second"):
        machine(name)
        loaded = tune.load(uris[0])
        assert loaded.uri == uris[0]
        assert loaded.get_dataframe().to_dict("list") == grid.get_dataframe().to_dict("list")
        assert loaded.best.path == best.path
        (alone,) = tune.load(uris[1])
        assert alone.metrics == best.metrics
        assert tune.Result.from_path(uris[1]).metrics_dataframe is not None
        copy = Path(tune.Checkpoint(uris[2]).to_directory(tmp_path / name / "copy"))
        assert (copy / "model.txt").read_text() == "0.1 1"
        assert tune.Tuner.can_restore(uris[0])
        assert len(tune.Tuner.restore(uris[0], learn).get_results()) == 2
    filesystem, path = pyarrow.fs.FileSystem.from_uri(f"{uris[2]}&region=us-east-1")
    with filesystem.open_input_stream(f"{path}/model.txt") as stream:
        assert stream.read() == b"0.1 1"
    machine("third")
    for uri in uris:
        assert main(["best", uri]) == 0
        assert json.loads(capfd.readouterr().out) == {"lr": 0.1}
        assert main(["show", uri]) == 0
        assert "2 finished" in capfd.readouterr().out


def test_tags_are_in_every_row_and_a_restore_keeps_them(fit: Any, tmp_path: Path) -> None:
    grid = fit(learn, {"lr": tune.grid_search([1, 2])}, name="run", tags={"data": "v3", "seed": 7})
    assert grid.tags == {"data": "v3", "seed": "7"}
    restored = tune.Tuner.restore(grid.uri, learn)
    assert "tags: data=v3, seed=7" in repr(restored)
    for loaded in (tune.load(grid.uri), restored.fit(), restored.get_results()):
        assert loaded.tags == grid.tags
        rows = pickle.loads(pickle.dumps(loaded[0])).metrics_dataframe
        assert rows is not None
        for frame in (loaded.get_dataframe(), loaded.get_dataframe("loss", "min"), rows):
            assert set(frame["tag/seed"]) == {"7"}
            assert set(frame["config/lr"]) <= {1, 2}
            assert set(frame["experiment_tag"]) <= {"0_lr=1", "1_lr=2"}
    assert main(["export", str(grid.uri), "--rows", "-o", str(tmp_path / "rows.csv")]) == 0
    lines = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [line["config/lr"] for line in lines] == ["1", "1", "2", "2"]
    assert {line["tag/data"] for line in lines} == {"v3"}
    assert lines[0]["experiment_tag"] == "0_lr=1"


def test_rows_without_a_config_get_it_in_the_table(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG_IN_ROWS", "0")
    (result,) = fit(learn, {"lr": 1.0, "net": {"width": 8}}, name="run")
    assert "config" not in result.rows()[0]
    assert result.metrics_dataframe is not None
    assert result.metrics_dataframe["config/net/width"].tolist() == [8, 8]


def test_a_training_is_loaded_as_its_fit_returned_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"loss": config["lr"]})

    run_config = train.RunConfig(name="training", storage_path=str(tmp_path), verbose=0)
    trained = DataParallelTrainer(loop, train_loop_config={"lr": 2}, run_config=run_config).fit()
    with caplog.at_level(logging.WARNING):
        loaded = train.load(tmp_path / "training")
    assert loaded.metrics == trained.metrics
    assert loaded.path == trained.path
    assert train.load(run_config).uri == trained.uri == trained.path
    assert tune.load(run_config).best.metrics == trained.metrics
    assert caplog.text == ""
