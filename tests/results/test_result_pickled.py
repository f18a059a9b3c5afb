"""A result in a pickle: what travels with it, and what is read where it is unpickled."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from holdfast.experiment.user_objects.stored_objects import NamedObject, StoredObject, UsersValues
from holdfast.results.result import Result
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.errors import InvalidLocation
from holdfast.syncer.stores.location import Location
from holdfast.trial.values import Opaque, Ref
from tests.results.reported import epochs, result_of
from tests.results.reported import run as run
from tests.rig.runs.recorded import RecordedExperiment

Dumps = Callable[[Any], bytes]
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
