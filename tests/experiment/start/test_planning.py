"""What a run begins with: its spec, its machines, its objects, and what is refused before it."""

from __future__ import annotations

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from holdfast import tune
from holdfast.api.fit import none_stays
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.nodes.engines import PlannedEngine
from holdfast.experiment.progress.wording import room_notice
from holdfast.experiment.records.place import ExperimentPlace, check_local, check_remote
from holdfast.experiment.start.planning import capacity_of, check_resources, large_parts, sync_of
from holdfast.experiment.start.request import seed_of
from holdfast.experiment.user_objects.stored_objects import stored
from holdfast.runtime.engines.engine import Engine, Offer
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.journal import Journal
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location
from holdfast.trial.config import SyncConfig
from holdfast.trial.errors import ImpossibleResources
from holdfast.trial.resources import NodeKind, PlacementGroupFactory


def fail(layout: Layout, *, robbed: bool) -> None:
    with none_stays(layout):
        layout.root.mkdir()
        layout.tuner.write_bytes(b"objects")
        journal = Journal(layout.journal)
        if robbed:
            (segment,) = layout.journal.iterdir()
            shutil.move(segment, layout.root.parent)
        journal.abandon()
        raise RuntimeError("it fails")


def test_a_run_that_has_recorded_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail(Layout(tmp_path / "run"), robbed=False)
    assert list(tmp_path.iterdir()) == []


def test_the_objects_stay_for_a_journal_that_somebody_has_taken_away(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "run")
    with pytest.raises(RuntimeError):
        fail(layout, robbed=True)
    assert layout.tuner.read_bytes() == b"objects", "the journal may be put back, and restored"


def messages(**values: Any) -> list[str]:
    return large_parts({name: stored(value, name) for name, value in values.items()}, values)


def test_the_value_that_makes_a_space_large_is_named() -> None:
    space = {"lr": 0.1, "data": {"train": np.zeros(2_000_000), "test": np.zeros(10)}}
    (text,) = messages(param_space=space)
    assert text.startswith("param_space['data']['train'] is large: tuner.pkl holds 16.0 MB")
    assert "holdfast.put(data)" in text


def test_the_variable_that_makes_a_function_large_is_named() -> None:
    table = np.zeros(2_000_000)

    def train(config: dict[str, Any]) -> None:
        print(len(table), config)

    (text,) = messages(trainable=train)
    assert text.startswith("the trainable: the variable 'table' is large")


def test_an_object_of_many_small_parts_is_named_itself() -> None:
    parts = [np.zeros(200_000) for _ in range(10)]
    (text,) = messages(param_space={"parts": parts})
    assert text.startswith("param_space['parts'] is large")


def test_small_objects_are_not_mentioned() -> None:
    assert messages(param_space={"data": np.zeros(1000)}, trainable=print) == []


HERE = MachineResources(total={"CPU": 2.0})
OFFER = [NodeKind(name="gpu", resources={"CPU": 4.0, "GPU": 1.0}, most=2)]


def test_what_this_machine_lacks_a_cluster_may_have() -> None:
    request = PlacementGroupFactory([{"CPU": 4, "GPU": 1}])
    check_resources(None, request, HERE, OFFER)
    with pytest.raises(ImpossibleResources, match="this machine has"):
        check_resources(None, request, HERE, [])


@pytest.mark.parametrize(
    "request_",
    [
        PlacementGroupFactory([{"CPU": 8}]),
        PlacementGroupFactory([{"GPU": 1}] * 3),
        PlacementGroupFactory([{"CPU": 1}] * 3, strategy="STRICT_SPREAD"),
        PlacementGroupFactory([{"GPU": 1}, {"GPU": 1}], strategy="STRICT_PACK"),
    ],
)
def test_what_no_nodes_could_have_together_is_refused_with_the_offer(
    request_: PlacementGroupFactory,
) -> None:
    with pytest.raises(ImpossibleResources) as refused:
        check_resources(None, request_, HERE, OFFER)
    assert "'gpu' nodes with {'CPU': 4.0, 'GPU': 1.0} (at most 2)" in str(refused.value)


def test_nodes_that_nobody_has_seen_yet_may_have_anything() -> None:
    check_resources(None, PlacementGroupFactory([{"CPU": 999}]), HERE, [NodeKind(name="ssh")])


def test_with_an_offer_no_trial_runs_on_this_machine() -> None:
    assert capacity_of(HERE, OFFER) == {}
    assert capacity_of(HERE, []) == {"CPU": 2.0}


def test_a_cluster_publishes_every_ten_seconds_unless_the_user_says_otherwise() -> None:
    engine = PlannedEngine(offer=Offer(kinds=[]), least=1, most=1, make=_never)
    assert sync_of(SyncConfig(), engine).sync_period == 10
    assert sync_of(SyncConfig(sync_period=60), engine).sync_period == 60
    assert sync_of(SyncConfig(), None).sync_period == 300


def _never(tasks: TaskScope) -> Engine:
    raise AssertionError("no engine is made before the run")


def spec(max_concurrent: int | None, bundle: dict[str, float] | None) -> ExperimentSpec:
    return ExperimentSpec(
        experiment_id="e",
        run="aaaaa",
        trainable="t",
        seed=0,
        max_concurrent=max_concurrent,
        resources=PlacementGroupFactory([bundle]) if bundle else None,
    )


def test_the_resource_that_lets_fewer_trials_run_than_asked_is_named() -> None:
    have = {"CPU": 8.0, "GPU": 2.0}
    text = room_notice(spec(8, {"CPU": 1, "GPU": 0.5}), have, [], 20)
    assert "8 trials may run at once, but there is room for 4: each asks for 0.5 GPUs" in text
    assert "this machine has 2 GPUs" in text
    assert "CPU" not in text.partition("Ask for less")[0]
    text = room_notice(spec(8, {"CPU": 2}), have, OFFER, None)
    assert "room for 4: each asks for 2 CPUs, and the cluster has at most 8 CPUs" in text


@pytest.mark.parametrize(
    ("most", "bundle", "total"),
    [
        (None, {"CPU": 4}, 20),  # no number was asked for
        (8, {"CPU": 4}, 2),  # there are no more trials than have room
        (2, {"CPU": 4}, 20),
        (8, None, 20),  # each trial's config decides
        (8, {"CPU": 0}, 20),
    ],
)
def test_nothing_is_short_where_all_have_room(
    most: int | None, bundle: dict[str, float] | None, total: int
) -> None:
    assert room_notice(spec(most, bundle), {"CPU": 8.0}, [], total) == ""


def test_what_a_cluster_may_have_is_not_guessed() -> None:
    offer = [NodeKind(name="any", resources={"CPU": 1.0}, most=None)]
    assert room_notice(spec(8, {"CPU": 1}), {}, offer, 20) == ""


@pytest.mark.parametrize(
    ("name", "meant"), [("gpus", "gpu"), ("num_cpus", "cpu"), ("ram", "memory")]
)
def test_a_resource_by_another_name_is_refused_with_its_name_here(name: str, meant: str) -> None:
    request = PlacementGroupFactory([{name: 1}])
    for offer in ([], OFFER):
        with pytest.raises(ImpossibleResources, match=f"Instead of {name!r}, use {meant!r}"):
            check_resources(None, request, HERE, offer)


CONFIG = {"metric": "loss", "mode": "min", "num_samples": 4}


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1})


@pytest.fixture
def told(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> Any:
    def warnings(space: dict[str, Any], **config: Any) -> str:
        tuner = tune.Tuner(
            train,
            param_space=space,
            tune_config=tune.TuneConfig(**{**CONFIG, **config}),
            run_config=tune.RunConfig(name="run", storage_path=str(tmp_path)),
        )
        tuner.fit(resume="auto")
        return capfd.readouterr().err

    return warnings


@pytest.mark.parametrize(
    ("space", "meant"),
    [
        (
            {"lr": (0.001, 0.1)},
            "lr is a tuple, which is one value: did you mean tune.uniform(0.001, 0.1), "
            "tune.choice([0.001, 0.1]) or tune.grid_search([0.001, 0.1])?",
        ),
        ({"net": {"kind": ["a", "b"]}}, "net/kind is a list, which is one value: did you mean tu"),
        ({"layers": list(range(100))}, "tune.choice([...]) or tune.grid_search([...])?"),
    ],
)
def test_a_list_where_a_domain_is_meant_is_warned_about(told: Any, space: Any, meant: str) -> None:
    shown = told(space)
    assert "warning: nothing varies: all 4 trials get the same config. " in shown
    assert meant in shown


@pytest.mark.parametrize(
    ("space", "samples"),
    [
        ({"layers": [8, 8], "lr": tune.uniform(0, 1)}, 2),
        ({"layers": [8, 8]}, 1),
        ({"params": {"eval_metric": ["logloss", "error"]}}, 1),
        ({"seed": 1}, 2),
        ({}, 2),
    ],
)
def test_other_spaces_are_not_warned_about(told: Any, space: Any, samples: int) -> None:
    shown = told(space, num_samples=samples)
    assert "nothing varies" not in shown
    assert "is one value" not in shown


def test_a_list_of_different_values_for_a_single_trial_is_mentioned(told: Any) -> None:
    shown = told({"layers": [8, 8], "lr": [0.1, 0.2, 0.3]}, num_samples=1)
    assert "lr is one value, a list of 3. For a trial per value write tune.grid_search(" in shown
    assert shown.count("is one value") == 1


def test_a_forgotten_mode_is_warned_about_at_once_and_can_be_added_later(told: Any) -> None:
    assert "warning: TuneConfig(metric='loss') has no mode" in told({"a": 1}, mode=None)
    shown = told({"a": 1})
    assert "from now on, mode: was none, now min" in shown
    assert "has no mode" not in shown
    assert "best loss=1" in shown
    with pytest.raises(tune.TuneError, match="mode: was min, now max"):
        told({"a": 1}, mode="max")


@pytest.fixture
def place(tmp_path: Path) -> ExperimentPlace:
    return ExperimentPlace(
        name="e",
        layout=Layout(tmp_path / "here"),
        location=Location.resolve(tmp_path / "there", None, {}),
        remote=Location.resolve(tmp_path / "there", None, {}),
    )


def test_two_trees_may_try_one_storage_at_once(place: ExperimentPlace, tmp_path: Path) -> None:
    def try_it(name: str) -> None:
        tree = replace(place, layout=Layout(tmp_path / name))
        for _ in range(150):
            check_local(tree)
            check_remote(tree)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(try_it, ["here", "elsewhere"]))
    assert os.listdir(place.layout.root) == []
    assert place.remote is not None
    assert os.listdir(place.remote.path) == []


def test_what_a_run_of_the_same_tree_left_when_it_was_killed_goes(place: ExperimentPlace) -> None:
    assert place.remote is not None
    probes: list[Path] = []

    class Killed(BaseException):
        """Replaces SIGKILL, between the write and the read."""

    def die(store: LocalStore, key: str) -> bytes:
        probes.append(store.root / key)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "_read", die)
        with pytest.raises(Killed):
            check_remote(place)
    (probes[0].parent / ".tmp-0123456789abcdef").touch()
    check_remote(replace(place, layout=Layout(place.layout.root.with_name("elsewhere"))))
    assert probes[0].exists()
    check_remote(place)
    assert os.listdir(place.remote.path) == []


def test_a_local_tree_that_cannot_be_is_reported(place: ExperimentPlace) -> None:
    place.layout.root.write_bytes(b"a file")
    with pytest.raises(StorageError, match="File exists") as caught:
        check_local(place)
    assert caught.value.where == str(place.layout.root)


@pytest.mark.parametrize("seed", [0, 7, -(2**63) + 1, 2**63 - 1])
def test_the_seed_of_an_experiment_is_that_of_its_search(seed: int) -> None:
    assert seed_of(BasicVariantGenerator(random_state=seed)) == seed


def test_a_number_of_numpy_is_a_seed_as_any_other() -> None:
    assert seed_of(BasicVariantGenerator(random_state=np.int64(7))) == 7


def test_a_seed_that_is_too_large_for_the_journal_is_still_one_seed() -> None:
    large = 2**200 + 5
    assert seed_of(BasicVariantGenerator(random_state=large)) == 5
    assert seed_of(BasicVariantGenerator(random_state=-large)) == 2**63 - 5


@pytest.mark.parametrize("seed", [None, "abc", 1.5, random.Random(1), [1]])
def test_what_is_not_a_number_is_not_the_seed_of_an_experiment(seed: Any) -> None:
    search = SimpleNamespace(seed=seed)
    one, other = seed_of(search), seed_of(search)
    assert 0 <= min(one, other) <= max(one, other) < 2**63
    assert one != other
