"""Loggers, trackers and reporters of holdfast in files: as class and arguments, without their
keys."""

from __future__ import annotations

import copy
import pickle
import pickletools
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast import tune
from holdfast.air.integrations.mlflow import MLflowLoggerCallback
from holdfast.air.integrations.wandb import WandbLoggerCallback
from holdfast.described import UnknownDescription, alike, description_of, state_of
from holdfast.experiment.user_objects.pickling import loads
from holdfast.experiment.user_objects.stored_objects import (
    NeedsTrust,
    StoredField,
    restored,
    stored,
)
from holdfast.experiment.user_objects.tuner_file import TunerFile
from tests.data import watching_objects
from tests.data.watching_objects import SECRET

DATA = Path(__file__).parents[2] / "data"
OBJECTS = watching_objects.objects()
TRACKERS = {type(one).__name__ for one in watching_objects.trackers()}


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.mark.parametrize("name", OBJECTS)
def test_it_is_a_class_and_arguments_in_every_file(name: str) -> None:
    value = OBJECTS[name]
    found = description_of(value)
    assert found is not None
    assert found.state == {}
    field = stored(value, name)
    assert field.objects is None
    assert field.pickled is None
    assert alike(restored(field, trusted=True), value)
    private = {key for key in vars(value) if key.startswith("_")}
    for data in (pickle.dumps(value), cloudpickle.dumps(value)):
        assert not private & {text for _, text, _ in pickletools.genops(data)}
        assert alike(loads(data), value)
    assert alike(copy.deepcopy(value), value)


@pytest.mark.parametrize("name", sorted(TRACKERS))
def test_no_file_holds_a_key(name: str) -> None:
    value = OBJECTS[name]
    assert SECRET in repr(value.secrets())
    for data in (pickle.dumps(value), repr(stored(value, name)).encode()):
        assert SECRET.encode() not in data
    twin = restored(stored(value, name), trusted=True)
    assert SECRET not in repr(vars(twin))


class Keyed(WandbLoggerCallback):
    """A user's subclass, which is pickled: its own state leaves out a part of what it knows."""

    def __init__(self, word: str) -> None:
        super().__init__(project="kelp", api_key=word)
        self.word = word

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "word": "", "api_key": None}


def test_a_users_subclass_is_pickled_without_the_key_too() -> None:
    data = cloudpickle.dumps(Keyed(SECRET))
    assert SECRET.encode() not in data
    twin = loads(data)
    assert type(twin).__name__ == "Keyed"
    assert (twin.project, twin.api_key, twin.word) == ("kelp", None, "")


class Own(tune.Callback):
    def __init__(self, seen: list[int]) -> None:
        self.seen = seen


class Table(tune.CLIReporter):
    def __init__(self, shown: str) -> None:
        super().__init__(metric_columns=[shown])
        self.shown = shown


def test_the_users_own_come_back_as_they_were() -> None:
    assert loads(cloudpickle.dumps(Own([1, 2]))).seen == [1, 2]
    table: Any = Table("loss")
    table.add_metric_column("accuracy")
    data = cloudpickle.dumps(table)
    assert b"_metric_columns" not in data
    twin = loads(data)
    assert (twin.shown, alike(twin, table)) == ("loss", True)
    with pytest.raises(ValueError, match="a column for 'accuracy'"):
        twin.add_metric_column("accuracy")


def test_the_example_of_a_file_loads() -> None:
    file = TunerFile(DATA / "watching-2" / "tuner.pkl")
    assert file.fault == ""
    for name, value in OBJECTS.items():
        found = file.load(name)
        assert type(found) is type(value)
        known, meant = state_of(found), state_of(value)
        known.pop("_start_time", None)  # which was once that of the constructor
        assert {key: meant[key] for key in known} == known, name
        assert alike(state_of(loads(cloudpickle.dumps(found))), state_of(found)), name


def test_a_restore_tracks_where_its_own_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = stored(OBJECTS["MLflowLoggerCallback"], "it")
    assert restored(kept, trusted=True).tracking_uri == "http://tracks.example:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other.example")
    assert restored(kept, trusted=True).tracking_uri == "http://other.example"
    changed = MLflowLoggerCallback("http://tracks.example")
    changed.tracking_uri = "http://later.example"
    assert restored(stored(changed, "it"), trusted=True).tracking_uri == "http://other.example"


@pytest.mark.parametrize("name", OBJECTS)
def test_an_untrusted_file_has_nothing_sent_anywhere(name: str) -> None:
    field = stored(OBJECTS[name], name)
    if name in TRACKERS:
        with pytest.raises(NeedsTrust, match="sends reports to the address"):
            restored(field, trusted=False)
    else:
        assert alike(restored(field, trusted=False), OBJECTS[name])


@pytest.mark.parametrize("name", ["tune.Tuner", "tune.run", "logger.pretty_print", "mlflow.os"])
def test_a_file_cannot_have_holdfast_create_just_anything(name: str) -> None:
    tree = {"__holdfast__": "made", "class": name, "version": 1, "args": [], "kwargs": {}}
    with pytest.raises(UnknownDescription):
        restored(StoredField(plain=tree), trusted=True)
