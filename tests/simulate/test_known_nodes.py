"""A study on a cluster: the machine sees simulated nodes join, announce their end and leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast import tune
from holdfast.experiment.records.journal import unpack
from holdfast.scheduler.events import CheckpointLost, Event, NodeJoined, NodeLeft
from holdfast.simulate import Faults, simulate
from holdfast.trial.resources import PlacementGroupFactory
from tests.simulate.test_study import study

LOSSES = Faults(workers_per_node=2, node_life_s=9.0, node_absence_s=5.0)


class Kept:
    """A trace that is kept as events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, record: bytes) -> None:
        self.events.append(unpack(record).event)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]


def test_without_faults_it_is_as_fast_as_on_one_machine() -> None:
    alone, found = study(workers=6), study(nodes=3, faults=Faults(workers_per_node=2))
    assert (found.workers, found.duration_s) == (6, alone.duration_s)
    assert [trial.metrics for trial in found.trials] == [trial.metrics for trial in alone.trials]


def test_a_node_that_is_back_has_another_name() -> None:
    kept = Kept()
    found = study(nodes=2, faults=LOSSES, checkpoint_every=1, trace=kept)
    names = [event.node for event in kept.of(NodeJoined)]
    assert names[:2] == ["node-0", "node-1"]
    assert "node-0-2" in names
    assert len(set(names)) == len(names)
    assert found.failures["node"] == len(kept.of(NodeLeft))


def test_a_checkpoint_is_lost_with_its_node_unless_it_was_in_storage() -> None:
    at_once, late = Kept(), Kept()
    safe = study(nodes=2, faults=LOSSES, checkpoint_every=1, trace=at_once)
    lost = study(nodes=2, faults=LOSSES, checkpoint_every=1, commit_s=0.5, trace=late)
    assert (at_once.of(CheckpointLost), safe.repeated) == ([], 0)
    assert late.of(CheckpointLost)
    assert lost.repeated > 0
    assert lost.stop_reasons == {"finished": 20}


def test_a_trial_that_is_told_saves_before_its_node_is_taken_back() -> None:
    def repeated(notice_s: float) -> int:
        faults = replace(LOSSES, preempts=True, notice_s=notice_s)
        run = {"failure_config": tune.FailureConfig(max_failures=0, max_preemptions=-1)}
        found = study(nodes=2, faults=faults, run=run)
        assert found.stop_reasons == {"finished": 20}
        return found.repeated

    assert repeated(1.0) == 0
    assert repeated(0.0) > 0


def test_resources_may_depend_on_the_config() -> None:
    def cpus(config: dict[str, Any]) -> PlacementGroupFactory:
        return PlacementGroupFactory([{"CPU": config["cpus"]}])

    def curve(config: dict[str, Any], iteration: int) -> float:
        return 1 / iteration

    found = simulate(
        curve,
        param_space={"cpus": tune.grid_search([1, 2, 2, 1])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(stop={"training_iteration": 3}),
        nodes=2,
        node_resources={"CPU": 2},
        resources=cpus,
    )
    assert (found.stop_reasons, found.duration_s) == ({"finished": 4}, 6.0)
