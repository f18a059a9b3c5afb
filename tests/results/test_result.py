"""One trial's result, from the records of a run and from its folder: metrics, error, config."""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import pytest
from pyarrow.fs import LocalFileSystem

from holdfast.experiment.user_objects.stored_objects import NamedObject, StoredObject
from holdfast.results.ranking import PandasMissing
from holdfast.results.result import Result
from holdfast.scheduler.events import EndOrdered, Exited, Resumed
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import FailureConfig
from holdfast.trial.values import Opaque, Ref
from tests.results.reported import epochs, result_of
from tests.results.reported import run as run
from tests.rig.runs.recorded import RecordedExperiment

ONE_RETRY = FailureConfig(max_failures=1)


def test_metrics_are_the_last_row_with_config_tag_and_automatic_ones(
    run: RecordedExperiment,
) -> None:
    metrics = result_of(run, epochs(run, 0.5, 0.25)).metrics
    assert metrics is not None
    assert metrics["loss"] == 0.25
    assert metrics["eval"] == {"acc": 0.75}
    assert metrics["training_iteration"] == 2
    assert metrics["time_this_iter_s"] == 0.5
    assert metrics["time_total_s"] == 1.0
    assert metrics["done"] is True
    assert metrics["experiment_tag"] == "0_lr=0.1"
    assert metrics["config"] == {"lr": 0.1, "net": {"width": 8}}
    assert metrics["checkpoint_dir_name"] == "checkpoint_000001"


def test_from_path_says_what_the_records_say(run: RecordedExperiment) -> None:
    trial_id = epochs(run, 0.5, 0.25)
    told, read = result_of(run, trial_id), Result.from_path(run.folder(trial_id))
    assert told.metrics is not None
    assert read.metrics is not None
    assert {**read.metrics, "done": True} == told.metrics
    assert read.config == told.config == {"lr": 0.1, "net": {"width": 8}}
    assert read.path == told.path == str(run.folder(trial_id))
    assert [row for _, row in read.best_checkpoints] == [row for _, row in told.best_checkpoints]
    assert [c.path for c, _ in read.best_checkpoints] == [c.path for c, _ in told.best_checkpoints]
    assert read.error is told.error is None
    assert isinstance(read.filesystem, LocalFileSystem)


def test_metrics_do_not_wait_for_the_projector(run: RecordedExperiment) -> None:
    trial_id = run.begin({"lr": 1})
    run.report(trial_id, {"loss": 3.0})
    run.write_files()
    run.report(trial_id, {"loss": 2.0})
    metrics = result_of(run, trial_id).metrics
    assert metrics is not None
    assert (metrics["loss"], metrics["training_iteration"]) == (2.0, 2)
    assert metrics["done"] is False
    assert metrics["time_this_iter_s"] > 0


def test_metrics_of_a_rolled_back_attempt_are_those_that_result_json_kept(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp", failure=ONE_RETRY)
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    run.report(trial_id, {"loss": 0.1})
    run.fail(trial_id)
    run.start(trial_id)
    run.fail(trial_id)
    run.ends()
    metrics = result_of(run, trial_id).metrics
    assert metrics is not None
    assert (metrics["loss"], metrics["training_iteration"]) == (0.5, 1)


def test_the_dataframe_has_a_line_for_each_iteration(run: RecordedExperiment) -> None:
    frame = result_of(run, epochs(run, 0.5, 0.25, 0.125)).metrics_dataframe
    assert frame is not None
    assert list(frame["training_iteration"]) == [1, 2, 3]
    assert list(frame["eval/acc"]) == [0.5, 0.75, 0.875]
    assert list(frame["config/net/width"]) == [8, 8, 8]


def test_a_dataframe_without_pandas_says_how_to_install_it(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = result_of(run, epochs(run, 0.5))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PandasMissing, match="pip install 'pandas>="):
        result.metrics_dataframe  # noqa: B018
    assert result.metrics is not None


def test_the_error_carries_facts_whichever_way_it_is_read(run: RecordedExperiment) -> None:
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5})
    run.fail(trial_id, "KeyError", "'lr': it is\nmissing")
    run.write_files()
    told, read = result_of(run, trial_id).error, Result.from_path(run.folder(trial_id)).error
    assert told is not None
    assert read is not None
    assert told.failure.type_name == "KeyError"
    assert told.log == str(run.folder(trial_id))
    assert "train.py" in str(told)
    assert read.trial_id == told.trial_id
    assert read.failure.type_name == "KeyError"
    assert read.failure.message == "'lr': it is\nmissing"
    assert read.failure.traceback.strip() == told.failure.traceback.strip()
    assert (read.failure.pid, read.failure.hostname) == (1001, "host")


@pytest.mark.parametrize("step_s", [1.0, 0.0])
def test_a_trial_that_continued_after_a_failure_has_no_error(
    tmp_path: Path, step_s: float
) -> None:
    run = RecordedExperiment(tmp_path / "exp", step_s=step_s, failure=ONE_RETRY)
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5})
    run.fail(trial_id)
    run.start(trial_id)
    run.report(trial_id, {"loss": 0.4})
    run.finish(trial_id)
    run.ends()
    assert (run.folder(trial_id) / "error.txt").exists()
    assert result_of(run, trial_id).error is None
    assert Result.from_path(run.folder(trial_id)).error is None


@pytest.mark.parametrize("step_s", [1.0, 0.0])
def test_a_retry_that_fails_before_it_reports_is_an_error(tmp_path: Path, step_s: float) -> None:
    run = RecordedExperiment(tmp_path / "exp", step_s=step_s, failure=ONE_RETRY)
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    run.fail(trial_id, "OSError", "first")
    run.start(trial_id)
    run.fail(trial_id, "OSError", "second")
    run.ends()
    for result in (result_of(run, trial_id), Result.from_path(run.folder(trial_id))):
        assert result.error is not None
        assert result.error.failure.message == "second"


def test_a_failure_after_an_interrupted_attempt_is_an_error(run: RecordedExperiment) -> None:
    trial_id = run.begin()
    run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    run.add(EndOrdered(reason="interrupt"))
    run.add(Exited(trial_id=trial_id, attempt=1, cause="ended"))
    run.add(Resumed(epoch=2, capacity={"CPU": 1}))
    run.start(trial_id)
    run.fail(trial_id)
    run.write_files()
    assert Result.from_path(run.folder(trial_id)).error is not None


def test_an_object_in_the_config_is_a_placeholder_that_loads_when_asked(
    run: RecordedExperiment,
) -> None:
    stored = Opaque(pickled=cloudpickle.dumps({"weights": [1, 2]}), summary="dict")
    named = Ref(path=("encoder",), index=None, summary="Encoder")
    trial_id = run.begin({"model": stored, "encoder": named, "lr": 0.1})
    config = result_of(run, trial_id).config
    assert config is not None
    assert isinstance(config["model"], StoredObject)
    assert repr(config["model"]) == "<model: a stored dict, load() unpickles it>"
    assert config["model"].load() == {"weights": [1, 2]}
    assert isinstance(config["encoder"], NamedObject)
    assert repr(config["encoder"]) == "<encoder: Encoder of the script's param_space, not stored>"
    assert config["lr"] == 0.1


def test_nothing_is_unpickled_by_reading(run: RecordedExperiment) -> None:
    trial_id = run.begin({"model": Opaque(pickled=b"no pickle at all", summary="Model")})
    run.report(trial_id, {"loss": 1.0})
    run.write_files()
    assert "Model" in repr(result_of(run, trial_id).config)
    assert Result.from_path(run.folder(trial_id)).config == {"model": "Model"}


def test_an_attribute_of_an_older_ray_says_what_to_use(run: RecordedExperiment) -> None:
    result = result_of(run, epochs(run, 0.5))
    with pytest.raises(AttributeError, match=r"no attribute 'log_dir'. Use result\.path"):
        _ = result.log_dir  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = result.nonsense  # type: ignore[attr-defined]


def test_a_repr_is_short_and_reads_nothing(run: RecordedExperiment) -> None:
    trial_id = run.begin()
    run.report(trial_id, {f"metric_{at}": at for at in range(100)})
    run.fail(trial_id)
    text = repr(result_of(run, trial_id))
    assert "metric_0': 0" in text
    assert "... 92 more" in text
    assert "training_iteration=1" in text
    assert "ValueError: oh no" in text
    assert "config={" in text
    assert len(text) < 700


def test_a_result_made_by_hand_is_what_was_given(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    result = Result({"loss": 1.0}, checkpoint, None, "/x", None, [(checkpoint, {"loss": 1.0})])
    assert result.metrics == {"loss": 1.0}
    assert result.config is None
    assert result.metrics_dataframe is None
    assert result.get_best_checkpoint("loss", "min") is checkpoint
    assert isinstance(result.filesystem, LocalFileSystem)


def test_metrics_of_a_trial_that_never_reported_are_what_is_known(run: RecordedExperiment) -> None:
    trial_id = run.begin({"lr": 1}, "0_lr=1")
    run.fail(trial_id)
    run.write_files()
    assert result_of(run, trial_id).metrics == {
        "config": {"lr": 1},
        "trial_id": trial_id,
        "done": True,
        "experiment_tag": "0_lr=1",
    }
