"""`tune.load` and `train.load`: what `fit()` returned, read later from the records."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from holdfast import train, tune
from holdfast.experiment.user_objects.stored_objects import StoredObject
from holdfast.results.reading import ExperimentNotFound
from holdfast.results.result_grid import ExperimentAnalysis
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.values import Opaque
from tests.rig.runs.recorded import RecordedExperiment


class Poison:
    """Its pickle runs code."""

    def __reduce__(self) -> tuple[object, ...]:
        return pytest.fail, ("a reader has unpickled a value",)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    """Two finished trials with checkpoints, one that failed, one that runs."""
    recorded = RecordedExperiment(tmp_path / "exp", metric="loss", mode="min")
    poison = Opaque(pickled=cloudpickle.dumps(Poison()), summary="Poison")
    for lr, losses in ((0.1, (3.0, 1.0, 2.0)), (0.2, (5.0, 4.0))):
        trial_id = recorded.begin({"lr": lr, "model": poison}, f"0_lr={lr}")
        for loss in losses:
            recorded.report(trial_id, {"loss": loss}, checkpoint="committed")
        recorded.finish(trial_id)
    recorded.fail(recorded.begin({"lr": 0.3}))
    recorded.report(recorded.begin({"lr": 0.4}), {"loss": 9.0})
    recorded.write_files(snapshot=True)
    yield recorded
    recorded.close()


def files_of(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_it_has_what_the_results_of_fit_have(run: RecordedExperiment, tmp_path: Path) -> None:
    grid = tune.load(run.layout.root)
    assert len(grid) == 4
    assert [result.metrics["loss"] for result in grid[:2] if result.metrics] == [2.0, 4.0]
    best = grid.get_best_result()
    assert best.config is not None
    assert best.config["lr"] == 0.1
    assert best.metrics_dataframe is not None
    assert best.metrics_dataframe["loss"].tolist() == [3.0, 1.0, 2.0]
    assert best.checkpoint is not None
    copied = Path(best.checkpoint.to_directory(tmp_path / "copy"))
    assert [path.name for path in copied.iterdir()] != []
    assert [metrics["loss"] for _, metrics in best.best_checkpoints] == [3.0, 1.0, 2.0]
    assert (grid.num_errors, grid.num_terminated) == (1, 2)
    assert len(grid.errors) == 1
    assert grid.get_dataframe()["config/lr"].tolist() == [0.1, 0.2, 0.3, 0.4]
    assert grid.to_arrow().column("experiment_tag").to_pylist()[:2] == ["0_lr=0.1", "0_lr=0.2"]
    assert grid.importances("loss").metric == "loss"
    assert len(pickle.loads(pickle.dumps(grid))) == 4


def test_nothing_is_locked_changed_or_unpickled(run: RecordedExperiment) -> None:
    before = files_of(run.layout.root)
    lock = ExperimentLock(run.layout.lock)  # it runs
    try:
        before = files_of(run.layout.root)
        config = tune.load(run.layout.root)[0].config
    finally:
        lock.release()
    assert config is not None
    assert isinstance(config["model"], StoredObject)
    assert repr(config["model"]) == "<model: a stored Poison, load() unpickles it>"
    assert {name: old for name, old in files_of(run.layout.root).items() if name in before} == (
        before
    )


@pytest.mark.parametrize(
    "form", ["path", "text", "uri", "relative", "config", "filesystem", "below"]
)
def test_a_copy_is_read_by_each_form_of_its_address(
    run: RecordedExperiment, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "other place" / "copy #1?"
    shutil.copytree(run.layout.root, copy)
    shutil.rmtree(run.layout.root)
    monkeypatch.chdir(copy.parent)
    match form:
        case "path":
            grid = tune.load(copy)
        case "text":
            grid = tune.load(str(copy))
        case "uri":
            grid = tune.load(copy.as_uri())
        case "relative":
            grid = tune.load(copy.name)
        case "config":
            grid = tune.load(tune.RunConfig(name=copy.name, storage_path=str(copy.parent)))
        case "filesystem":
            grid = tune.load(copy.as_posix(), LocalFileSystem())
        case _:
            inner = SubTreeFileSystem(str(copy.parent), LocalFileSystem())
            with pytest.raises(ExperimentNotFound, match="there is no experiment at nowhere"):
                tune.load("nowhere", storage_filesystem=inner)
            grid = tune.load(copy.name, storage_filesystem=inner)
    assert grid.get_best_result().metrics_dataframe is not None
    assert grid.experiment_path == (copy.name if form == "below" else str(copy))


def test_a_trial_that_runs_is_interrupted_once_no_process_runs_it(
    run: RecordedExperiment,
) -> None:
    lock = ExperimentLock(run.layout.lock)
    try:
        live = tune.load(run.layout.root)
        analysis = ExperimentAnalysis(run.layout.root)
    finally:
        lock.release()
    assert live[3].stop_reason == tune.ResultGrid(analysis)[3].stop_reason == ""
    assert "<td>running</td>" in live._repr_html_()
    cut = tune.load(run.layout.root)
    assert cut[3].stop_reason == "interrupted"
    assert cut.get_dataframe()["stop_reason"].tolist()[3] == "interrupted"
    assert "<td>interrupted</td>" in cut._repr_html_()


def test_an_address_without_an_experiment_says_what_to_pass(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    with pytest.raises(ExperimentNotFound, match=r"there is no experiment at .*nowhere"):
        tune.load(tmp_path / "nowhere")
    with pytest.raises(ExperimentNotFound, match="a folder of experiments: pass one of them"):
        tune.load(tmp_path)
    with pytest.raises(InvalidConfig, match="must be text, not None"):
        tune.load(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="there is no run 2"):
        tune.load(run.layout.root, run=2)


def test_damage_is_logged(run: RecordedExperiment, caplog: pytest.LogCaptureFixture) -> None:
    segment = sorted(run.layout.journal.glob("*.log"))[-1]
    segment.write_bytes(segment.read_bytes() + b"\0" * 9)
    assert len(tune.load(run.layout.root)) == 4
    assert f"{run.layout.root}: journal/{segment.name}" in caplog.text


def test_a_training_is_one_result(run: RecordedExperiment, tmp_path: Path) -> None:
    alone = RecordedExperiment(tmp_path / "training")
    trial_id = alone.begin({"train_loop_config": {"lr": 1}})
    alone.report(trial_id, {"loss": 1.0}, checkpoint="committed")
    alone.fail(trial_id)
    alone.ends()
    result = train.load(tmp_path / "training")
    assert result.metrics is not None
    assert result.metrics["loss"] == 1.0
    assert result.checkpoint is not None
    assert result.error is not None
    assert tune.load(tmp_path / "training")[0].path == result.path
    with pytest.raises(
        InvalidConfig, match=re.escape("4 trials, not one training: use tune.load")
    ):
        train.load(run.layout.root)


def test_it_is_what_an_analysis_of_the_records_says(run: RecordedExperiment) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    assert repr(tune.ResultGrid(analysis)) == repr(tune.load(run.layout.root))
