"""One trial's result: from the records of a run, and from its directory alone."""

from __future__ import annotations

import math
import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest
from pyarrow.fs import FileSelector, LocalFileSystem, S3FileSystem, SubTreeFileSystem

from holdfast.experiment.folder.row_lines import DamagedRows
from holdfast.experiment.results.ranking import NoBestResult, PandasMissing
from holdfast.experiment.results.result import Result, ResultNotFound
from holdfast.experiment.user_objects.placeholders import NamedObject, StoredObject, UsersValues
from holdfast.scheduler.events import EndOrdered, Exited, Resumed
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.errors import InvalidLocation
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.stores.location import Location
from holdfast.trial.checkpoint import evolve_record
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.values import Opaque, Ref
from tests.rig.recorded import RecordedExperiment
from tests.rig.s3_server import S3Server, make_bucket, moto_server

Dumps = Callable[[Any], bytes]
ONE_RETRY = FailureConfig(max_failures=1)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp")
    yield recorded
    recorded.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


def result_of(run: RecordedExperiment, trial_id: str) -> Result:
    return Result.of_trial(run.trial(trial_id), run.location, run.layout)


def epochs(run: RecordedExperiment, *losses: Any, checkpoint: str = "committed") -> str:
    """A finished trial that reported these losses, each with a checkpoint."""
    trial_id = run.begin({"lr": 0.1, "net": {"width": 8}}, "0_lr=0.1")
    for loss in losses:
        acc = 1 - loss if isinstance(loss, float) else None
        run.report(trial_id, {"loss": loss, "eval": {"acc": acc}}, checkpoint=checkpoint)
    run.finish(trial_id)
    run.write_files()
    return trial_id


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


def test_the_best_checkpoint_by_a_nested_metric(run: RecordedExperiment) -> None:
    best = result_of(run, epochs(run, 0.5, 0.1, 0.3)).get_best_checkpoint("eval/acc", "max")
    assert best is not None
    assert best.path.endswith("checkpoint_000001")


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


def test_a_mode_that_is_neither_is_refused(run: RecordedExperiment) -> None:
    with pytest.raises(InvalidConfig, match="mode must be 'max' or 'min', not 'best'"):
        result_of(run, epochs(run, 0.5)).get_best_checkpoint("loss", "best")


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


def test_the_config_has_the_users_objects_where_they_can_be_resolved(
    run: RecordedExperiment,
) -> None:
    encoder = object()
    trial_id = run.begin({"encoder": Ref(path=("encoder",), index=None, summary="object")})
    result = Result.of_trial(
        run.trial(trial_id), run.location, run.layout, lambda config: {"encoder": encoder}
    )
    assert result.config is not None
    assert result.config["encoder"] is encoder
    assert result.metrics is not None
    assert result.metrics["config"]["encoder"] is encoder


# -- pickled ------------------------------------------------------------------------------------

PICKLERS = [pickle.dumps, cloudpickle.dumps]


class Encoder:
    """A user's value that reports when it is unpickled."""

    loaded: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Encoder.loaded.append(self.name)


def gone() -> None:
    raise ModuleNotFoundError("no module of the user's here")


class Gone:
    """A value whose class is missing where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return gone, ()


def with_values(run: RecordedExperiment, space: dict[str, Any], *, unpickles: bool) -> Result:
    """A trial whose config refers to `encoder` in `space`, and contains another one."""
    named = Ref(path=("encoder",), index=None, summary="Encoder", shown="utf-8")
    stored = Opaque(pickled=pickle.dumps(space["model"]), summary="Encoder")
    trial_id = run.begin({"encoder": named, "model": stored, "lr": 0.1, "kept": {1, 2}})
    run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    run.finish(trial_id)
    run.write_files()
    values = UsersValues(space, unpickles=unpickles)
    return Result.of_trial(run.trial(trial_id), run.location, run.layout, values)


@pytest.mark.parametrize("dumps", PICKLERS)
def test_a_result_comes_back_from_its_pickle(run: RecordedExperiment, dumps: Dumps) -> None:
    trial_id = run.begin({"lr": 0.1, "labels": {0: {"a"}}})
    for loss in (0.5, 0.25):
        run.report(trial_id, {"loss": loss}, checkpoint="committed")
    run.fail(trial_id)
    run.write_files()
    told = result_of(run, trial_id)
    assert told.filesystem is not None  # read, and not pickled
    for original in (told, Result.from_path(run.folder(trial_id))):
        back: Result = pickle.loads(dumps(original))
        assert back.metrics == original.metrics
        assert back.config == original.config
        assert back.path == original.path
        assert back.error is not None
        assert str(back.error) == str(original.error)
        assert back.checkpoint == original.checkpoint
        assert back.best_checkpoints == original.best_checkpoints
        assert back.metrics_dataframe is not None
        assert original.metrics_dataframe is not None
        assert back.metrics_dataframe.equals(original.metrics_dataframe)
        assert isinstance(back.filesystem, LocalFileSystem)
        assert repr(back) == repr(original)


@pytest.mark.parametrize("dumps", PICKLERS)
def test_a_result_made_by_hand_comes_back_from_its_pickle(tmp_path: Path, dumps: Dumps) -> None:
    result = Result({"loss": 1.0}, Checkpoint(tmp_path), None, "/x")
    assert isinstance(result.filesystem, LocalFileSystem)
    back: Result = pickle.loads(dumps(result))
    assert (back.metrics, back.checkpoint, back.path) == ({"loss": 1.0}, result.checkpoint, "/x")
    assert isinstance(back.filesystem, LocalFileSystem)


@pytest.mark.parametrize("dumps", PICKLERS)
def test_the_users_values_travel_with_a_result_and_are_unpickled_when_asked_for(
    run: RecordedExperiment, dumps: Dumps
) -> None:
    space = {"encoder": Encoder("named"), "model": Encoder("stored")}
    result = with_values(run, space, unpickles=True)
    Encoder.loaded.clear()
    back: Result = pickle.loads(dumps(pickle.loads(dumps(result))))
    assert Encoder.loaded == []
    config = back.config
    assert config is not None
    assert {*Encoder.loaded} == {"named", "stored"}
    assert (config["encoder"].name, config["model"].name) == ("named", "stored")
    assert (config["lr"], config["kept"]) == (0.1, {1, 2})


def test_values_whose_classes_are_gone_are_placeholders(run: RecordedExperiment) -> None:
    result = with_values(run, {"encoder": Gone(), "model": Gone()}, unpickles=True)
    back: Result = pickle.loads(pickle.dumps(result))
    assert back.metrics is not None
    assert back.metrics["loss"] == 0.5
    encoder, model = back.metrics["config"]["encoder"], back.metrics["config"]["model"]
    assert isinstance(encoder, NamedObject)
    assert encoder.shown == "utf-8"
    assert isinstance(model, StoredObject)
    with pytest.raises(ModuleNotFoundError, match="no module of the user's here"):
        model.load()


def test_values_that_cannot_be_pickled_are_placeholders_in_the_copy(
    run: RecordedExperiment,
) -> None:
    result = with_values(run, {"encoder": threading.Lock(), "model": 1}, unpickles=False)
    assert result.config is not None
    assert not isinstance(result.config["encoder"], NamedObject)
    config = pickle.loads(pickle.dumps(result)).config
    assert isinstance(config["encoder"], NamedObject)
    assert isinstance(config["model"], StoredObject)


def test_what_a_folder_says_survives_it_in_a_pickle(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    data = pickle.dumps(Result.from_path(folder))
    shutil.rmtree(folder)
    back: Result = pickle.loads(data)
    assert back.metrics is not None
    assert (back.metrics["loss"], back.config) == (0.25, {"lr": 0.1, "net": {"width": 8}})
    assert back.rows() == []


def test_a_result_that_is_unpickled_elsewhere_is_read_from_its_storage(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    trial_id = epochs(run, 0.5, 0.25)
    storage = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    location = Location.resolve("bucket/exp", storage, {})
    data = pickle.dumps(Result.of_trial(run.trial(trial_id), location, run.layout))
    (tmp_path / "bucket").mkdir()
    run.layout.root.rename(tmp_path / "bucket" / "exp")  # the other machine does not have it
    back: Result = pickle.loads(data)
    assert [row["loss"] for row in back.rows()] == [0.5, 0.25]
    assert back.path == f"bucket/exp/{run.folder(trial_id).name}"
    assert back.checkpoint is not None
    assert back.checkpoint.path == f"{back.path}/checkpoint_000001"
    with back.checkpoint.as_directory() as folder:
        assert Path(folder, "model.txt").read_text() == "model of iteration 2"


class Tied(SubTreeFileSystem):  # type: ignore[misc]
    """A filesystem that belongs to its process."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("holds a connection")


def test_a_filesystem_that_cannot_be_pickled_stays_behind(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    trial_id = epochs(run, 0.5, 0.25)
    location = Location.resolve("exp", Tied(str(tmp_path), LocalFileSystem()), {})
    back: Result = pickle.loads(
        pickle.dumps(Result.of_trial(run.trial(trial_id), location, layout=None))
    )
    assert back.path == f"exp/{run.folder(trial_id).name}"
    with pytest.raises(InvalidLocation, match="its storage_filesystem must be given"):
        _ = back.filesystem


# -- what is broken or not there ----------------------------------------------------------------


def test_a_row_that_is_being_written_does_not_count(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    with open(folder / "result.json", "ab") as file:
        file.write(b'{"loss": 0.1, "training_it')
    result = Result.from_path(folder)
    assert result.metrics is not None
    assert result.metrics["training_iteration"] == 2
    assert len(result.rows()) == 2


def test_the_last_row_is_found_behind_any_number_of_long_ones(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5))
    rows = [f'{{"loss": {at}, "padding": "{"x" * 30_000}"}}\n' for at in range(20)]
    (folder / "result.json").write_text("".join(rows))
    result = Result.from_path(folder)
    assert result.metrics is not None
    assert result.metrics["loss"] == 19


def test_a_damaged_row_is_reported_by_file_and_line(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    data = (folder / "result.json").read_bytes()
    (folder / "result.json").write_bytes(data.replace(b"{", b"#", 1))
    result = Result.from_path(folder)
    with pytest.raises(DamagedRows, match=r"result\.json: line 1 is not JSON"):
        result.rows()


def test_a_path_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResultNotFound, match="there is no trial directory at") as caught:
        Result.from_path(tmp_path / "nothing")
    assert caught.value.path == str(tmp_path / "nothing")


def test_a_directory_that_is_not_a_trials_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResultNotFound, match=r"not a trial directory: it has no result\.json"):
        Result.from_path(tmp_path)


def test_the_directory_of_an_experiment_has_the_result_of_its_only_trial(
    run: RecordedExperiment,
) -> None:
    with pytest.raises(ResultNotFound, match=r"of an experiment with 0 trials: tune\.load"):
        Result.from_path(run.layout.root)
    trial_id = epochs(run, 0.5, 0.25)
    only = Result.from_path(run.layout.root)
    assert only.path == str(run.folder(trial_id))
    assert only.metrics == Result.from_path(run.folder(trial_id)).metrics
    assert len(only.best_checkpoints) == 2
    run.begin({"lr": 0.2})
    name = run.folder(trial_id).name
    with pytest.raises(ResultNotFound, match=rf"with 2 trials: .*, such as {name}") as caught:
        Result.from_path(run.layout.root)
    assert caught.value.path == str(run.layout.root)


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
    assert len(text) < 700


def test_a_result_made_by_hand_is_what_was_given(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    result = Result({"loss": 1.0}, checkpoint, None, "/x", None, [(checkpoint, {"loss": 1.0})])
    assert result.metrics == {"loss": 1.0}
    assert result.config is None
    assert result.metrics_dataframe is None
    assert result.get_best_checkpoint("loss", "min") is checkpoint
    assert isinstance(result.filesystem, LocalFileSystem)


def test_a_directory_on_a_given_filesystem_is_read_there(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    trial_id = epochs(run, 0.5, 0.25)
    dirname = run.folder(trial_id).name
    storage = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    (run.folder(trial_id) / "checkpoint_000001" / MANIFEST_NAME).unlink()
    result = Result.from_path(f"exp/{dirname}", storage)
    assert result.metrics is not None
    assert result.metrics["loss"] == 0.25
    assert result.path == f"exp/{dirname}"
    assert result.checkpoint is not None
    assert result.checkpoint.path == f"exp/{dirname}/checkpoint_000000"
    assert result.filesystem.get_file_info(FileSelector(result.path))


@pytest.mark.server
def test_a_directory_in_s3_is_read_by_its_uri(run: RecordedExperiment, s3: S3Server) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    make_bucket(s3, "results")
    bucket = S3FileSystem(
        access_key=s3.access_key, secret_key=s3.secret_key, endpoint_override=s3.endpoint
    )
    for path in folder.rglob("*"):
        if path.is_file():
            with bucket.open_output_stream(
                f"results/exp/{path.relative_to(folder.parent)}"
            ) as out:
                out.write(path.read_bytes())
    result = Result.from_path(s3.uri(f"results/exp/{folder.name}"))
    assert result.path == f"results/exp/{folder.name}"
    assert result.metrics is not None
    assert result.metrics["loss"] == 0.25
    assert [row["loss"] for _, row in result.best_checkpoints] == [0.5, 0.25]
    assert s3.secret_key not in repr(result)
    back: Result = pickle.loads(pickle.dumps(result))
    assert [row["loss"] for row in back.rows()] == [0.5, 0.25]
    assert back.checkpoint == result.checkpoint
    with pytest.raises(ResultNotFound):
        Result.from_path(s3.uri("results/exp/nothing"))
