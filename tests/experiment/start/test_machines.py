"""A request that no machine can ever meet is refused before the first trial."""

from __future__ import annotations

import pytest

from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.nodes.engines import PlannedEngine
from holdfast.experiment.progress.wording import room_notice
from holdfast.experiment.start.planning import capacity_of, check_resources, sync_of
from holdfast.runtime.engines.engine import Engine, Offer
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.config import SyncConfig
from holdfast.trial.errors import ImpossibleResources
from holdfast.trial.resources import NodeKind, PlacementGroupFactory

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
