"""A study on a cluster: the machine sees simulated nodes join, announce their end and leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import tune
from holdfast.experiment.records.journal import unpack
from holdfast.scheduler.events import CheckpointLost, Event, NodeJoined, NodeLeft
from holdfast.simulate import Faults, simulate
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import STRATEGIES, PlacementGroupFactory
from holdfast.trial.trial import Status
from tests.simulate.test_study import BAD_DAYS, SCHEDULERS, Folded, study

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


@given(
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    seed=st.integers(0, 10**6),
    nodes=st.integers(1, 4),
    reuses=st.booleans(),
    every=st.integers(0, 3),
    start_s=st.sampled_from([0.0, 0.3]),
    stop_s=st.sampled_from([0.0, 0.7]),
    commit_s=st.sampled_from([0.0, 2.5]),
    crash_rate=st.sampled_from([0.0, 0.1]),
    node_life_s=st.sampled_from([None, 10.0, 100.0]),
    notice_s=st.sampled_from([None, 0.0, 1.5]),
    bundles=st.integers(1, 3),
    strategy=st.sampled_from(STRATEGIES),
)
@settings(max_examples=20, deadline=None)
def test_no_trial_is_lost_whatever_happens_to_the_nodes(
    scheduler: str,
    seed: int,
    nodes: int,
    reuses: bool,
    every: int,
    start_s: float,
    stop_s: float,
    commit_s: float,
    crash_rate: float,
    node_life_s: float | None,
    notice_s: float | None,
    bundles: int,
    strategy: str,
) -> None:
    folded = Folded()
    faults = Faults(
        failure_rate=0.05,
        crash_rate=crash_rate,
        straggler_share=0.3,
        node_life_s=node_life_s,
        node_absence_s=5.0,
        preempts=notice_s is not None,
        notice_s=notice_s or 0.0,
    )
    count = min(bundles, nodes) if strategy == "STRICT_SPREAD" else bundles
    found = study(
        SCHEDULERS[scheduler](),
        tuning={"num_samples": 9, "reuse_actors": reuses},
        nodes=nodes,
        node_resources={"CPU": 3},
        resources=PlacementGroupFactory([{"CPU": 1}] * count, strategy),
        checkpoint_every=every,
        start_s=start_s,
        stop_s=stop_s,
        commit_s=commit_s,
        faults=faults,
        seed=seed,
        trace=folded,
    )
    assert (found.reason, found.message) == ("done", "")
    assert {trial.status for trial in found.trials} == {Status.TERMINATED}
    assert len(found.trials) == 9
    trials = folded.machine.trials.values()
    told = [(t.trial_id, t.status, t.iteration, t.attempts, t.metrics) for t in found.trials]
    assert told == [(t.trial_id, t.status, t.iteration, t.attempt, t.row) for t in trials]


def test_the_same_seed_gives_the_same_trace() -> None:
    faults = BAD_DAYS
    first = study(SCHEDULERS["asha"](), nodes=3, faults=faults, seed=7)
    assert study(SCHEDULERS["asha"](), nodes=3, faults=faults, seed=7).digest == first.digest


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


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        ({"nodes": 0}, "nodes must be a whole number of at least 1, not 0"),
        ({"nodes": 2, "capacity": {"CPU": 1}}, "a cluster has node_resources"),
        ({"node_resources": {"CPU": 1}}, "node_resources needs nodes="),
        (
            {"nodes": 2, "resources": lambda config: PlacementGroupFactory([{"CPU": 1}])},
            "need node_resources=",
        ),
    ],
)
def test_what_can_mean_nothing_is_refused(given_: Mapping[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        study(**given_)


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
