"""The checkpoints of a result: their order, the best one, and those that do not count."""

from __future__ import annotations

import math
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from holdfast.results.ranking import NoBestResult
from holdfast.results.result import Result
from holdfast.syncer.stores.location import Location
from holdfast.trial.config import CheckpointConfig
from holdfast.trial.trial import evolve_record
from tests.results.reported import epochs, result_of
from tests.results.reported import run as run
from tests.rig.runs.recorded import RecordedExperiment


def test_best_checkpoints_come_oldest_first_each_with_its_row(run: RecordedExperiment) -> None:
    found = result_of(run, epochs(run, 0.5, 0.1, 0.3)).best_checkpoints
    assert [Path(checkpoint.path).name for checkpoint, _ in found] == [
        "checkpoint_000000",
        "checkpoint_000001",
        "checkpoint_000002",
    ]
    assert [row["loss"] for _, row in found] == [0.5, 0.1, 0.3]


@pytest.mark.parametrize(
    ("order", "losses"), [("min", [math.nan, 0.5, 0.3, 0.1]), ("max", [math.nan, 0.1, 0.3, 0.5])]
)
def test_with_a_score_the_worst_checkpoint_comes_first(
    run: RecordedExperiment, order: str, losses: list[float]
) -> None:
    trial_id = epochs(run, 0.5, 0.1, math.nan, 0.3)
    trial = run.trial(trial_id)
    scores = (0.5, 0.1, None, 0.3)
    scored = [evolve_record(c, score=s) for c, s in zip(trial.checkpoints, scores, strict=True)]
    kept = CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order=order)
    trial = replace(trial, checkpoints=tuple(scored))
    result = Result.of_trial(trial, run.location, run.layout, kept=kept)
    found = [row["loss"] for _, row in result.best_checkpoints]
    assert repr(found) == repr(losses)  # NaN is not equal to itself
    back: Result = pickle.loads(pickle.dumps(result))
    assert repr([row["loss"] for _, row in back.best_checkpoints]) == repr(losses)


def test_the_newest_checkpoint_is_the_checkpoint(run: RecordedExperiment) -> None:
    checkpoint = result_of(run, epochs(run, 0.5, 0.1)).checkpoint
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        assert Path(folder, "model.txt").read_text() == "model of iteration 2"


@pytest.mark.parametrize(("mode", "number"), [("min", 1), ("max", 2)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "0.2", True, None])
def test_the_best_checkpoint_is_never_one_without_a_finite_number(
    run: RecordedExperiment, mode: str, number: int, bad: Any
) -> None:
    result = result_of(run, epochs(run, bad, 0.1, 0.3))
    best = result.get_best_checkpoint("loss", mode)
    assert best is not None
    assert Path(best.path).name == f"checkpoint_00000{number}"


def test_a_metric_that_no_checkpoint_has_is_reported_with_those_there_are(
    run: RecordedExperiment,
) -> None:
    result = result_of(run, epochs(run, 0.5))
    with pytest.raises(NoBestResult, match=r"'los'.*Reported metrics: eval/acc, loss, ") as caught:
        result.get_best_checkpoint("los", "min")
    assert caught.value.metric == "los"
    assert "loss" in caught.value.reported


def test_checkpoints_without_a_finite_number_have_no_best(run: RecordedExperiment) -> None:
    problem = "'loss' is NaN or infinite in the reports of all 2 checkpoints"
    with pytest.raises(NoBestResult, match=problem):
        result_of(run, epochs(run, math.nan, math.inf)).get_best_checkpoint("loss", "max")


def test_a_best_checkpoint_of_a_trial_without_any_is_refused(run: RecordedExperiment) -> None:
    result = result_of(run, epochs(run, 0.5, checkpoint=""))
    assert result.checkpoint is None
    assert result.best_checkpoints == []
    with pytest.raises(NoBestResult, match="has no checkpoint"):
        result.get_best_checkpoint("loss", "min")


def test_a_staged_checkpoint_counts_on_the_machine_of_the_run(run: RecordedExperiment) -> None:
    trial_id = epochs(run, 0.5, checkpoint="staged")
    told, read = result_of(run, trial_id), Result.from_path(run.folder(trial_id))
    assert told.checkpoint is not None
    assert read.checkpoint is not None
    assert told.checkpoint.path == read.checkpoint.path


def test_a_checkpoint_without_a_manifest_is_invisible_in_a_copy(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    run.report(trial_id, {"loss": 0.4}, checkpoint="staged")
    run.write_files()
    copy = tmp_path / "copy" / "trial"
    shutil.copytree(run.folder(trial_id), copy)
    result = Result.from_path(copy)
    assert result.checkpoint is not None
    assert result.checkpoint.path == str(copy / "checkpoint_000000")
    assert len(result.best_checkpoints) == 1


def test_a_checkpoint_that_is_not_persisted_is_found_where_it_lies(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    run.report(trial_id, {"loss": 0.4}, checkpoint="staged")
    storage = Location.resolve("bucket/exp", SubTreeFileSystem("/", LocalFileSystem()), {})
    result = Result.of_trial(run.trial(trial_id), storage, run.layout)
    (first, _), (second, _) = result.best_checkpoints
    assert first.path == f"bucket/exp/{run.folder(trial_id).name}/checkpoint_000000"
    assert second.path == str(run.folder(trial_id) / "checkpoint_000001")
    elsewhere = Result.of_trial(run.trial(trial_id), storage, None)
    assert elsewhere.checkpoint == first
