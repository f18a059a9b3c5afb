"""Reading a whole experiment without its code: running, damaged, moved, or in storage."""

from __future__ import annotations

import json
import os
import pickle
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from holdfast.experiment.folder.layout import HEAD
from holdfast.results.ranking import analysed
from holdfast.results.reading import ExperimentNotFound, load_experiment
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.syncer.journal.journal import segment_name
from holdfast.trial.errors import InvalidConfig
from tests.rig.runs.recorded import RecordedExperiment


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    """Two finished trials with checkpoints, one that failed, one that runs."""
    recorded = RecordedExperiment(tmp_path / "exp", metric="loss", mode="min")
    for lr, losses in ((0.1, (3.0, 1.0, 2.0)), (0.2, (5.0, 4.0))):
        trial_id = recorded.begin({"lr": lr, "net": {"width": 8}}, f"0_lr={lr}")
        for loss in losses:
            recorded.report(trial_id, {"loss": loss}, checkpoint="committed")
        recorded.finish(trial_id)
    recorded.fail(recorded.begin({"lr": 0.3}))
    recorded.report(recorded.begin({"lr": 0.4}), {"loss": 9.0})
    recorded.write_files(snapshot=True)
    yield recorded
    recorded.close()


FIRST, SECOND, FAILED, LIVE = (f"d2a66_{index:05d}" for index in range(4))


def elsewhere(tmp_path: Path) -> SubTreeFileSystem:
    """This disk as a filesystem that does not seem to be the machine's own."""
    return SubTreeFileSystem(str(tmp_path), LocalFileSystem())


def test_a_missing_experiment_is_reported_with_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(ExperimentNotFound, match=r"no folder 'journal'.*<storage_path>/<name>"):
        ExperimentAnalysis(tmp_path)
    with pytest.raises(ExperimentNotFound) as caught:
        ExperimentAnalysis(tmp_path / "nothing")
    assert caught.value.path == str(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_remote_experiment_is_read_with_nothing_but_its_filesystem(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    analysis = ExperimentAnalysis("exp", storage_filesystem=elsewhere(tmp_path))
    assert analysis.experiment_path == "exp"
    assert analysis.outcome.layout is None
    best = analysis.get_best_trial("loss", "min", scope="all")
    assert best is not None
    assert best.trial_id == FIRST
    assert best.last_result["loss"] == 2.0
    assert list(analysis.dataframe("loss", "min")["loss"]) == [1.0, 4.0, 9.0]
    checkpoint = analysis.get_best_checkpoint(best)
    assert checkpoint is not None
    assert checkpoint.path == f"exp/{run.trial(FIRST).spec.dirname}/checkpoint_000001"


def test_nothing_is_left_of_what_was_fetched(
    run: RecordedExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    load_experiment("exp", elsewhere(tmp_path))
    assert list(temporary.iterdir()) == []


def test_a_snapshot_file_may_be_given_for_its_directory(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (newest,) = run.layout.root.glob("experiment_state-*.json")
    assert len(ExperimentAnalysis(newest).trials) == 4
    monkeypatch.chdir(run.layout.root)
    assert len(ExperimentAnalysis(newest.name).trials) == 4


def test_trials_have_what_scripts_read(run: RecordedExperiment) -> None:
    first, _, failed, live = ExperimentAnalysis(run.layout.root).trials
    assert first.config == {"lr": 0.1, "net": {"width": 8}}
    assert first.last_result["loss"] == 2.0
    assert first.status == "TERMINATED"
    assert first.local_path == first.path == str(run.folder(FIRST))
    assert str(first) == "train_d2a66_00000"
    assert first.checkpoint is not None
    assert first.checkpoint.path.endswith("checkpoint_000002")
    assert failed.status == "ERROR"
    assert failed.error_file == os.path.join(failed.path, "error.txt")
    assert failed.last_result == {}
    assert live.status == "RUNNING"
    assert live.checkpoint is None


def test_a_checkpoint_that_never_reached_storage_is_not_shown_from_afar(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    run.report(LIVE, {"loss": 8.0}, checkpoint="staged")
    here = ExperimentAnalysis(run.layout.root)
    far = ExperimentAnalysis("exp", storage_filesystem=elsewhere(tmp_path))
    assert here.trials[-1].checkpoint is not None
    assert far.trials[-1].checkpoint is None
    assert here.get_last_checkpoint(LIVE) is not None
    assert far.get_last_checkpoint(LIVE) is None


def test_what_is_best_follows_the_goal_of_the_experiment(run: RecordedExperiment) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    assert (analysis.default_metric, analysis.default_mode) == ("loss", "min")
    assert analysis.best_trial is not None
    assert analysis.best_trial.trial_id == FIRST
    assert analysis.best_config == {"lr": 0.1, "net": {"width": 8}}
    assert analysis.best_result is not None
    assert analysis.best_result["loss"] == 2.0
    assert analysis.best_checkpoint is not None
    assert analysis.best_checkpoint.path.endswith("checkpoint_000001")
    assert analysis.best_dataframe is not None
    assert list(analysis.best_dataframe["loss"]) == [3.0, 1.0, 2.0]
    assert analysis.best_result_df is not None
    assert analysis.best_result_df.loc[FIRST, "config/net/width"] == 8


def test_given_defaults_win_over_the_goal_of_the_experiment(run: RecordedExperiment) -> None:
    analysis = ExperimentAnalysis(run.layout.root, default_metric="loss", default_mode="max")
    assert analysis.best_trial is not None
    assert analysis.best_trial.trial_id == LIVE
    with pytest.raises(InvalidConfig, match="mode must be"):
        ExperimentAnalysis(run.layout.root, default_mode="best")


def test_a_goal_that_no_one_gave_is_asked_for(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp")
    run.report(run.begin(), {"loss": 1.0})
    with pytest.raises(InvalidConfig, match="no metric is given"):
        ExperimentAnalysis(run.layout.root).best_trial  # noqa: B018
    run.close()


def test_where_nothing_can_be_best_there_is_none_and_a_warning(
    run: RecordedExperiment, caplog: pytest.LogCaptureFixture
) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    assert analysis.get_best_trial("los", "min") is None
    assert analysis.get_best_config("los", "min") is None
    assert analysis.get_best_checkpoint(LIVE) is None
    assert re.search("no best trial: no trial reported a number 'los'", caplog.text)
    assert re.search("no best checkpoint: .* has no checkpoint", caplog.text)


def test_best_and_last_checkpoint_of_a_trial(run: RecordedExperiment) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    (first, *_) = analysis.trials
    best = analysis.get_best_checkpoint(first, "loss", "max")
    last = analysis.get_last_checkpoint(first)
    longest = analysis.get_last_checkpoint()
    assert best is not None
    assert last is not None
    assert longest is not None
    assert best.path.endswith("checkpoint_000000")
    assert last.path == longest.path == f"{run.folder(FIRST)}/checkpoint_000002"


def test_tables_by_trial_id(run: RecordedExperiment) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    assert list(analysis.results) == [FIRST, SECOND, FAILED, LIVE]
    assert analysis.results[SECOND]["loss"] == 4.0
    assert analysis.results_df.loc[SECOND, "config/lr"] == 0.2
    frames = analysis.trial_dataframes
    assert [len(frames[trial_id]) for trial_id in (FIRST, SECOND, FAILED, LIVE)] == [3, 2, 0, 1]
    assert analysis.get_all_configs()[FIRST] == {"lr": 0.1, "net": {"width": 8}}
    assert analysis.get_all_configs(prefix=True)[FIRST] == {
        "config/lr": 0.1,
        "config/net/width": 8,
    }


def test_an_analysis_can_be_narrowed_to_some_trials(run: RecordedExperiment) -> None:
    (_, second, *_) = ExperimentAnalysis(run.layout.root).trials
    analysis = ExperimentAnalysis(run.layout.root, trials=[second, LIVE])
    assert [trial.trial_id for trial in analysis.trials] == [SECOND, LIVE]
    assert analysis.best_trial == second
    with pytest.raises(InvalidConfig, match="there is no trial 'x'; the trials are d2a66_00000"):
        ExperimentAnalysis(run.layout.root, trials=["x"])


def test_a_repr_says_where_and_how_many(run: RecordedExperiment) -> None:
    text = repr(ExperimentAnalysis(run.layout.root))
    assert text == (
        f"ExperimentAnalysis({run.layout.root}: 4 trials, 2 finished, 1 failed, 1 interrupted)"
    )


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_an_analysis_comes_back_from_its_pickle(run: RecordedExperiment, dumps: Any) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    assert len(analysis.trials) == 4  # which is cached, and not pickled
    back: ExperimentAnalysis = pickle.loads(dumps(analysis))
    assert repr(back) == repr(analysis)
    assert [trial.trial_id for trial in back.trials] == [FIRST, SECOND, FAILED, LIVE]
    assert back.best_config == analysis.best_config
    assert back.best_result == analysis.best_result
    assert back.best_checkpoint == analysis.best_checkpoint
    assert back.trials[0].trainable_name == analysis.trials[0].trainable_name
    narrow = ExperimentAnalysis(run.layout.root, trials=[FIRST], default_mode="max")
    back = pickle.loads(dumps(narrow))
    assert (len(back.trials), back.default_mode) == (1, "max")


def test_an_earlier_run_is_read_from_storage_whose_head_names_only_the_newest(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    later = RecordedExperiment(run.layout.root, run="beef0")
    later.close()
    data = (run.layout.journal / segment_name(1)).read_bytes()
    named = {"name": segment_name(1), "size": len(data), "crc32": zlib.crc32(data)}
    (run.layout.root / HEAD).write_text(json.dumps({"format": 2, "segments": [named]}))
    newest = load_experiment("exp", elsewhere(tmp_path))
    assert (newest.machine.spec.run, newest.runs_before) == ("beef0", None)
    first = load_experiment("exp", elsewhere(tmp_path), 1)
    assert (first.machine.spec.run, first.runs_before, first.is_followed) == ("d2a66", 0, True)
    second = load_experiment("exp", elsewhere(tmp_path), 2)
    assert (second.machine.spec.run, second.runs_before) == ("beef0", 1)
    analysis = ExperimentAnalysis("exp", storage_filesystem=elsewhere(tmp_path), run=1)
    assert {trial.trial_id[:5] for trial in analysis.trials} == {"d2a66"}


def test_averages_of_the_last_rows_and_nested_values_are_computed_as_ray_does() -> None:
    rows = [{"a": {"b": value}, "text": "x", "config": {"lr": 1}} for value in range(1, 13)]
    found = analysed([*rows, {"other": 1}])
    assert set(found) == {"a/b", "other"}
    assert found["a/b"] == {
        "max": 12,
        "min": 1,
        "avg": 6.5,
        "last": 12,
        "last-5-avg": 10,
        "last-10-avg": 7.5,
    }


def test_a_grid_and_its_analysis_have_the_same_results(run: RecordedExperiment) -> None:
    analysis = ExperimentAnalysis(run.layout.root)
    grid = ResultGrid(analysis)
    assert grid.analysis.outcome is analysis.outcome
    assert grid.analysis.best_config == grid.best.config
    with pytest.raises(AttributeError, match=r"Use analysis.best_trial.path"):
        analysis.best_logdir  # type: ignore[attr-defined]  # noqa: B018
