"""Objects in files: holdfast's as a class and its arguments, and the user's pickled."""

from __future__ import annotations

import copy
import pickle
import pickletools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgpack
import pytest

from holdfast import tune
from holdfast.air.integrations.mlflow import MLflowLoggerCallback
from holdfast.air.integrations.wandb import WandbLoggerCallback
from holdfast.described import UnknownDescription, alike, description_of, state_of
from holdfast.experiment.user_objects.pickling import NotPicklable, dumps, loads
from holdfast.experiment.user_objects.stored_objects import (
    NeedsTrust,
    StoredField,
    restored,
    stored,
)
from holdfast.experiment.user_objects.tuner_file import (
    BrokenTunerFile,
    TunerFile,
    read,
    write,
)
from holdfast.experiment.worker.job import GroupTerms
from holdfast.lazy import Framework
from holdfast.tune import schedulers, search, stopper
from tests.data import tuner_objects
from tests.data.tuner_objects import SECRET, Thing

DATA = Path(__file__).parents[2] / "data"
OBJECTS = tuner_objects.objects()
WATCHERS = tuner_objects.watchers()
ALL = OBJECTS | WATCHERS
TRACKERS = {type(one).__name__ for one in tuner_objects.trackers()}
# Those that contain a user's object: a function, an instance.
NOT_PLAIN = {
    "trainable",
    "param_space",
    "scheduler PopulationBasedTraining",
    "stop FunctionStopper",
    "stop CombinedStopper",
}


def there_and_back(value: Any, *, trusted: bool = True) -> Any:
    field = stored(value, "it")
    plain = msgpack.unpackb(msgpack.packb(field.plain), strict_map_key=False)
    return restored(StoredField(plain=plain, objects=field.objects), trusted=trusted)


def test_the_examples_of_files_load() -> None:
    file = TunerFile(DATA / "tuner-2" / "tuner.pkl")
    assert file.fault == ""
    for name, value in OBJECTS.items():
        assert alike(file.load(name), value), name
    file = TunerFile(DATA / "watching-2" / "tuner.pkl")
    assert file.fault == ""
    for name, value in WATCHERS.items():
        found = file.load(name)
        known, meant = state_of(found), state_of(value)
        known.pop("_start_time", None)  # which was once that of the constructor
        assert {key: meant[key] for key in known} == known, name


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.mark.parametrize("name", ALL)
def test_every_object_of_holdfast_comes_back(name: str) -> None:
    value = ALL[name]
    assert alike(there_and_back(value), value)
    for twin in (pickle.loads(pickle.dumps(value)), loads(cloudpickle.dumps(value))):
        assert alike(twin, value)
    assert alike(copy.deepcopy(value), value)


def test_what_has_nothing_of_the_users_is_read_without_pickle_and_sends_nothing() -> None:
    plain = {name for name, value in ALL.items() if stored(value, name).objects is None}
    assert plain == ALL.keys() - NOT_PLAIN
    for name in plain - TRACKERS:
        assert alike(there_and_back(ALL[name], trusted=False), ALL[name])
    for name in TRACKERS:
        with pytest.raises(NeedsTrust, match="sends reports to the address"):
            there_and_back(ALL[name], trusted=False)
    for name in NOT_PLAIN:
        with pytest.raises(NeedsTrust):
            there_and_back(OBJECTS[name], trusted=False)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"trainable", "param_space", "missing"}))
def test_no_private_attribute_of_holdfast_is_in_any_file(name: str) -> None:
    """So that each of them can be renamed."""
    found = description_of(ALL[name])
    assert found is not None
    assert found.state == {}
    private = {key for key in vars(ALL[name]) if key.startswith("_")}
    texts = {text for _, text, _ in pickletools.genops(pickle.dumps(ALL[name]))}
    assert not private & texts
    tree = repr(stored(ALL[name], name))
    assert not [key for key in private if f"'{key}'" in tree]


def test_what_was_set_after_it_was_made_is_kept() -> None:
    scheduler = schedulers.ASHAScheduler(max_t=9)
    scheduler.metric = "loss"
    stop = stopper.TrialPlateauStopper("loss")
    stop("t0", {"loss": 1.0, "training_iteration": 1})
    for value in (scheduler, stop):
        for twin in (there_and_back(value), pickle.loads(pickle.dumps(value))):
            assert alike(twin, value)
    assert there_and_back(scheduler, trusted=False).metric == "loss"


class Hasty(schedulers.ASHAScheduler):
    """A user's subclass, with its own arguments before holdfast's."""

    def __init__(self, hurry: int) -> None:
        super().__init__("loss", "loss", "min", max_t=81 // hurry)
        self.hurry = hurry


class Own(schedulers.TrialScheduler):
    def __init__(self, thing: Thing) -> None:
        self.thing = thing


class Reduced(stopper.MaximumIterationStopper):
    def __reduce__(self) -> Any:
        return Reduced, (self.max_iter + 1,)


class Stated(stopper.MaximumIterationStopper):
    def __getstate__(self) -> Any:
        return {"told": self.max_iter}

    def __setstate__(self, state: Any) -> None:
        self.max_iter = state["told"] * 2


def test_of_a_users_subclass_our_part_is_made_again_and_theirs_is_kept() -> None:
    value: Any = Hasty(3)
    value.patience = 7
    data = cloudpickle.dumps(value)
    assert b"_max_t" not in data
    assert b"_brackets" not in data
    twins: list[Any] = [loads(data), copy.deepcopy(value), there_and_back([value])[0]]
    for twin in twins:
        assert type(twin) is Hasty
        assert alike(twin, value)
        assert (twin.hurry, vars(twin)["patience"]) == (3, 7)
    assert loads(cloudpickle.dumps(Own(Thing(2)))).thing == Thing(2)


def test_a_users_subclass_that_says_what_is_kept_of_it_is_heard() -> None:
    assert there_and_back(Reduced(3)).max_iter == 4
    assert there_and_back(Stated(3)).max_iter == 6


def test_points_that_a_search_learned_are_learned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Framework, "check", lambda _: None)
    given = search.HyperOptSearch(
        points_to_evaluate=[{"lr": 0.5}], evaluated_rewards=[1.0], random_state_seed=3
    )
    given.add_evaluated_point({"lr": 0.1}, 0.25, intermediate_values=[0.5])
    given.add_evaluated_point({"lr": 0.2}, 0.0, error=True)
    found = description_of(given)
    assert found is not None
    assert found.state == {}
    assert alike(there_and_back(given), given)
    with pytest.raises(NeedsTrust, match="to a library"):
        there_and_back(given, trusted=False)


def test_what_is_shared_stays_shared() -> None:
    thing, bound = Thing(1), stopper.MaximumIterationStopper(2)
    value = {
        "a": [thing, lambda: thing],
        "b": thing,
        "c": stopper.CombinedStopper(bound, bound),
    }
    twin = there_and_back(value)
    assert twin["a"][0] is twin["b"] is twin["a"][1]()
    first, second = twin["c"].stoppers
    assert first is second


@pytest.mark.parametrize(
    "value",
    [
        {"a": (1, 2.5, None, True, b"\0", "é"), 3: {4: 5}, (6,): {7, 8}, "big": 2**90},
        {"__holdfast__": "made", "class": "Float"},
        [[], {}, (), frozenset({1}), float("inf"), -(2**63), 2**64 - 1],
        tune.choice([tune.uniform(0, 1), {"x": tune.randint(1, 3)}]),
    ],
)
def test_plain_values_come_back_as_what_they_were(value: Any) -> None:
    found = there_and_back(value, trusted=False)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, dict):
        assert list(found) == list(value)


def test_what_contains_itself_or_is_very_deep_is_stored_all_the_same() -> None:
    round_about: list[Any] = []
    round_about.append(round_about)
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    for value in (round_about, deep):
        field = stored(value, "it")
        assert repr(restored(field, trusted=True)) == repr(value)


def test_what_cannot_be_pickled_is_named_by_its_place() -> None:
    value = {"net": {"lock": threading.Lock(), "lr": tune.uniform(0, 1)}}
    with pytest.raises(NotPicklable, match=r"param_space\['net'\]\['lock'\] is a lock"):
        stored(value, "param_space")


def made(name: Any = "stopper.MaximumIterationStopper", **more: Any) -> Any:
    return {"__holdfast__": "made", "class": name, "version": 1, "args": [3], **more}


HOSTILE: dict[str, Callable[[], Any]] = {
    "no such class": lambda: made("stopper.Gone"),
    "not a class": lambda: made("search.grid_search"),
    "another module": lambda: made("os.system"),
    "a class that is no value": lambda: made("tune.Tuner"),
    "a function": lambda: made("logger.pretty_print"),
    "a module": lambda: made("mlflow.os"),
    "a dotted path": lambda: made("search.os.system"),
    "a newer version": lambda: made(version=2),
    "a method": lambda: made(calls=[["__reduce_ex__", [4], {}]]),
    "other arguments": lambda: made(args=["many"]),
    "no arguments": lambda: made(args=7),
    "an abstract class": lambda: made("search.LibrarySearch"),
    "an unknown mark": lambda: {"__holdfast__": "called"},
    "an object that is not there": lambda: {"__holdfast__": "object", "number": 3},
    "an object below": lambda: {"__holdfast__": "object", "number": -1},
    "one that comes later": lambda: {"__holdfast__": "again", "number": 0},
    "a list as a key": lambda: {"__holdfast__": "dict", "pairs": [[[], 1]]},
    "no pairs": lambda: {"__holdfast__": "dict", "pairs": [1]},
    "a deep one": lambda: [made(args=[nested(500)])],
}


def nested(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tree]
    return tree


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("trusted", [True, False])
def test_a_forged_field_is_an_error_of_one_line(tmp_path: Path, name: str, trusted: bool) -> None:
    write(tmp_path / "tuner.pkl", {"stop": StoredField(plain=HOSTILE[name]())})
    file = TunerFile(tmp_path / "tuner.pkl", trusted=trusted)
    with pytest.raises(BrokenTunerFile, match=r"stop in|cannot be read") as caught:
        _needed(file)
    assert "\n" not in str(caught.value)


def _needed(file: TunerFile) -> Any:
    file.require(["stop"])
    return file.load("stop")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HFTUNR\0\2",
        b"HFTUNR\0\2\0\0\0",
        b"HFTUNR\0\3" + bytes(20),
        b"\x80\x04.",
        pickle.dumps({"format": 1, "fields": {"a": 3}, "crc32": 0}),
        pickle.dumps([1]),
    ],
)
def test_a_file_that_is_none_says_so(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tuner.pkl"
    path.write_bytes(data)
    assert TunerFile(path).fault.startswith(f"{path} cannot be read (")


def test_a_changed_file_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "tuner.pkl"
    write(path, {"missing": stored(["stop"], "missing")})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "its checksum is wrong" in TunerFile(path).fault


def test_a_file_that_is_extended_keeps_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "tuner.pkl"
    path.write_bytes((DATA / "tuner-2" / "tuner.pkl").read_bytes())
    TunerFile(path).extend({"stop-1": stored(stopper.MaximumIterationStopper(9), "stop")})
    file = TunerFile(path)
    assert file.is_extended
    assert file.load("stop-1").max_iter == 9
    assert alike(file.load("param_space"), OBJECTS["param_space"])
    assert read(path.read_bytes()).keys() == {*OBJECTS, "stop-1", "extended"}


def test_code_that_is_sent_keeps_the_name_of_its_file() -> None:
    """Otherwise no error could say where the user's function failed."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def train(config): return lambda: 1", "/home/me/train.py", "exec"), space)
    train = loads(dumps(space["train"], "the trainable"))
    assert train.__code__.co_filename == "/home/me/train.py"
    assert train({}).__code__.co_filename == "/home/me/train.py"


def test_a_frozen_class_takes_a_state_of_fewer_fields() -> None:
    before = GroupTerms(keeps_all_metrics=True)
    state: Any = before.__getstate__()
    for old in ({"keeps_all_metrics": True}, {**state, "gone": 1}):
        twin = GroupTerms.__new__(GroupTerms)
        twin.__setstate__(old)  # type: ignore[attr-defined]
        assert twin == before


def test_unknown_descriptions_say_what_is_unknown() -> None:
    with pytest.raises(UnknownDescription, match=r"this version of holdfast has no stopper\.Gone"):
        restored(StoredField(plain=made("stopper.Gone")), trusted=True)


# -- loggers, trackers and reporters --------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TRACKERS))
def test_no_file_holds_a_key(name: str) -> None:
    value = WATCHERS[name]
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


class Table(tune.CLIReporter):
    def __init__(self, shown: str) -> None:
        super().__init__(metric_columns=[shown])
        self.shown = shown


def test_a_users_table_comes_back_as_it_was() -> None:
    table: Any = Table("loss")
    table.add_metric_column("accuracy")
    data = cloudpickle.dumps(table)
    assert b"_metric_columns" not in data
    twin = loads(data)
    assert (twin.shown, alike(twin, table)) == ("loss", True)
    with pytest.raises(ValueError, match="a column for 'accuracy'"):
        twin.add_metric_column("accuracy")


def test_a_restore_tracks_where_its_own_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = stored(WATCHERS["MLflowLoggerCallback"], "it")
    assert restored(kept, trusted=True).tracking_uri == "http://tracks.example:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other.example")
    assert restored(kept, trusted=True).tracking_uri == "http://other.example"
    changed = MLflowLoggerCallback("http://tracks.example")
    changed.tracking_uri = "http://later.example"
    assert restored(stored(changed, "it"), trusted=True).tracking_uri == "http://other.example"
