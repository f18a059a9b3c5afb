"""Nodes join, announce their end and leave; trials get places on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from holdfast.scheduler.codec import recalled, snapshot
from holdfast.scheduler.demand import demand
from holdfast.scheduler.effects import Commit, Effect, Finish, Launch, Preempt, Release
from holdfast.scheduler.events import CheckpointLost, Raised
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.policy import (
    CloneTrial,
    Decision,
    Observation,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.testing.invariants import check
from holdfast.testing.rehearsal import Rehearsal, facts, through_journal
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import Failure, InvalidTransition
from holdfast.trial.resources import NodeKind, PlacementGroupFactory
from holdfast.trial.trial import Status

KIND = NodeKind(name="k", most=8)


def begun(*nodes: str, offer: tuple[NodeKind, ...] = (KIND,), **spec: Any) -> Rehearsal:
    """A run on these nodes, of two CPUs each."""
    run = Rehearsal(capacity={}, offer=offer, **spec)
    for node in nodes:
        run.joins(node)
    return run


def workers(count: int, strategy: str = "PACK", least: int | None = None) -> PlacementGroupFactory:
    bundles: list[dict[str, float]] = [{}, *[{"CPU": 1.0}] * count]
    return PlacementGroupFactory(
        bundles, strategy, least_bundles=None if least is None else 1 + least
    )


def launches(effects: list[Effect]) -> list[Launch]:
    return [effect for effect in effects if isinstance(effect, Launch)]


def where(effects: list[Effect]) -> list[tuple[str, ...]]:
    """The nodes of each launched trial's bundles."""
    return [
        tuple(place.node for place in launch.allocation.places) for launch in launches(effects)
    ]


def test_a_trial_without_a_gpu_leaves_the_gpus_to_others() -> None:
    run = begun(resources=None)
    run.joins("gpus", {"CPU": 1, "GPU": 1})
    run.joins("cpus", {"CPU": 9})
    assert where(run.suggest({"CPU": 1})) == [("cpus",)]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (workers(2), ("a", "a", "a")),
        (workers(3), ("a", "a", "a", "b")),
        (workers(2, "SPREAD"), ("a", "a", "b")),
        (workers(4, "SPREAD"), ("a", "a", "b", "c", "a")),
        (workers(2, "STRICT_PACK"), ("a", "a", "a")),
        (workers(3, "STRICT_SPREAD"), ("a", "a", "b", "c")),
    ],
)
def test_bundles_go_to_nodes_by_the_strategy(
    request_: PlacementGroupFactory, expected: tuple[str, ...]
) -> None:
    assert where(begun("a", "b", "c").suggest(request_)) == [expected]


@pytest.mark.parametrize("request_", [workers(3, "STRICT_PACK"), workers(4, "STRICT_SPREAD")])
def test_a_strict_strategy_waits_rather_than_give_in(request_: PlacementGroupFactory) -> None:
    run = begun("a", "b", "c", resources=None)
    assert launches(run.suggest(request_)) == []
    assert {node: capacity.free for node, capacity in run.machine.cluster.capacities.items()} == {
        node: {"CPU": 2} for node in "abc"
    }
    assert run.machine.ending is None or "can never start" in run.machine.ending.message


def test_larger_bundles_are_placed_first() -> None:
    run = begun(resources=None)
    run.joins("a", {"CPU": 4})
    run.joins("b", {"CPU": 1})
    assert where(run.suggest(PlacementGroupFactory([{"CPU": 1}, {"CPU": 4}]))) == [("b", "a")]


def test_a_lost_node_takes_its_resources_along() -> None:
    run = begun("a", "b", failure=FailureConfig(max_failures=1))
    for _ in range(3):
        run.suggest()
    assert run.machine.total_resources == {"CPU": 4}
    run.leaves("a")
    assert where(run.exits("t0", "was lost with node a")) == [("b",)]
    assert where(run.exits("t1", "was lost with node a")) == []
    assert run.machine.total_resources == {"CPU": 2}
    assert where(run.joins("a-2")) == [("a-2",)]
    assert run.trial("t0").failures == 1
    run.crash()


def test_an_error_names_the_node_also_of_a_worker_that_had_not_started() -> None:
    run = begun("a", failure=FailureConfig(max_failures=0))
    run.suggest()
    run.suggest()
    run.start("t0")
    run.leaves("a")
    for trial_id in ("t0", "t1"):
        run.exits(trial_id, "was lost with node a")
        error = run.trial(trial_id).error
        assert error is not None
        assert error.node == "a"
    assert run.trial("t0").place.nodes == ("a",)


def test_of_a_node_that_left_it_is_known_when_and_why_until_others_join_after_a_restore() -> None:
    run = begun("a", "b")
    run.is_leaving("b")
    run.leaves("b")
    assert run.machine.cluster.nodes["a"].joined_at > 0
    b = run.machine.cluster.former["b"]
    assert (b.cause, b.was.leaving, b.is_earlier) == ("no beat for 10 s", True, False)
    assert b.left_at == run.machine.now > b.was.joined_at
    run.resume()
    a, b = (run.machine.cluster.former[name] for name in ("a", "b"))
    assert (a.left_at, a.is_earlier, b.is_earlier) == (0, True, True)
    run.crash()


def test_the_trials_of_a_node_that_will_leave_save_and_count_as_preempted() -> None:
    run = begun("a", failure=FailureConfig(max_preemptions=-1))
    run.suggest()
    run.suggest()
    run.start("t0", "t1")
    effects = run.is_leaving("a")
    assert [one.trial_id for one in effects if isinstance(one, Preempt)] == ["t0", "t1"]
    assert run.is_leaving("a") == []
    run.fails("t0", kind="preempted")
    run.exits("t0")
    run.leaves("a")
    run.exits("t1", "was lost with node a")
    assert [run.trial(trial_id).preemptions for trial_id in ("t0", "t1")] == [1, 1]
    error = run.trial("t1").error
    assert error is not None
    assert error.kind == "preempted"
    assert where(run.joins("b")) == [("b",), ("b",)]


def test_nothing_starts_on_a_node_whose_disk_was_full_just_now() -> None:
    run = begun("a", "b", failure=FailureConfig(max_failures=1))
    assert where([*run.suggest(), *run.suggest()]) == [("a",), ("a",)]
    full = Failure(
        kind="user", type_name="OSError", message="[Errno 28] No space left on device", node="a"
    )
    effects = run.handle(Raised(trial_id="t0", attempt=1, failure=full))
    assert [one.trial_id for one in effects if isinstance(one, Preempt)] == ["t1"]
    assert where(run.exits("t0")) == [("b",)]
    run.fails("t1", kind="preempted")
    assert where(run.exits("t1")) == [("b",)]
    assert run.machine.cluster.nodes["a"].why == "its disk is full"


def test_nothing_starts_on_a_node_that_will_leave() -> None:
    run = begun("a")
    run.is_leaving("a")
    assert launches(run.suggest()) == []
    assert where(run.joins("b")) == [("b",)]


def test_an_idle_worker_is_not_used_again_when_its_node_goes() -> None:
    run = begun("a", reuse_actors=True, num_samples=3)
    run.suggest()
    run.suggest()
    run.start("t0", "t1")
    run.machine.search_waits = True
    run.returns("t0")
    assert list(run.machine.placement.idle) == ["t0"]
    effects = run.is_leaving("a")
    assert [one.trial_id for one in effects if isinstance(one, Release)] == ["t0"]
    assert run.machine.placement.idle == {}
    assert where(run.joins("b")) == []


def test_an_elastic_trial_continues_with_the_workers_that_are_left() -> None:
    run = begun("a", "b", "c", failure=FailureConfig(max_failures=0))
    elastic = workers(6, least=2)
    assert where(run.suggest(elastic)) == [("a", "a", "a", "b", "b", "c", "c")]
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.commit("t0", 0)
    run.leaves("a")
    assert where(run.exits("t0", "was lost with node a")) == [("b", "b", "b", "c", "c")]
    assert (run.trial("t0").setbacks, run.trial("t0").bundles) == (0, 5)
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.joins("d")
    run.report("t0", checkpoint=True, has_room=True)
    run.returns("t0")
    assert where(run.exits("t0")) == [("b", "b", "b", "c", "c", "d", "d")]
    run.crash()


def test_an_elastic_trial_that_lost_a_worker_grows_when_a_node_joins() -> None:
    failure = FailureConfig(max_failures=0, lost_worker_absence_s=1000)
    run = begun("a", "b", failure=failure)
    run.suggest(workers(4, least=1))
    run.start("t0")
    run.report("t0", checkpoint=True)
    (relaunched,) = launches(run.exits("t0", kind="memory"))
    assert len(relaunched.allocation.places) == 4
    run.joins("c")
    run.start("t0")
    run.report("t0", checkpoint=True, has_room=True)
    run.returns("t0")
    assert [len(nodes) for nodes in where(run.exits("t0"))] == [5]


def test_an_elastic_trial_grows_only_where_its_strategy_allows_it() -> None:
    run = begun("a", "b", resources=None)
    run.suggest(workers(3, "STRICT_SPREAD", least=1))
    run.start("t0")
    assert len(run.trial("t0").granted.bundles) == 3
    run.report("t0", checkpoint=True, has_room=True)
    assert run.trial("t0").status is Status.RUNNING


@pytest.mark.parametrize("answer", ["committed", "lost"])
def test_a_trial_waits_until_it_is_known_what_its_lost_node_had_saved(answer: str) -> None:
    run = begun("a", "b", failure=FailureConfig(max_failures=1))
    run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.leaves("a")
    assert launches(run.exits("t0", "was lost with node a")) == []
    assert run.machine.placement.waits == {"t0": WaitsFor.CHECKPOINT}
    assert from_snapshot(snapshot(run.machine)).placement.waits == {"t0": WaitsFor.CHECKPOINT}
    run.crash()
    if answer == "committed":
        (launch,) = launches(run.commit("t0", 0))
        assert launch.checkpoint is not None
        assert launch.checkpoint.committed
    else:
        lost = CheckpointLost(trial_id="t0", index=0, reason="not in storage", in_run=True)
        (launch,) = launches(run.handle(lost))
        assert launch.checkpoint is None
    assert launch.allocation.places[0].node == "b"


def test_a_restore_starts_nothing_before_it_has_resumed() -> None:
    run = begun("a", "b", failure=FailureConfig(max_failures=1))
    run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.leaves("a")
    run.exits("t0", "was lost with node a")
    run.crash()
    effects = run.handle(CheckpointLost(trial_id="t0", index=0, reason="gone"), after_s=0)
    assert (effects, run.trial("t0").attempt) == ([], 1)
    run.resume()
    assert where(run.joins("c")) == [("c",)]


def test_a_trial_that_waits_in_the_queue_waits_for_the_answer_when_the_node_leaves() -> None:
    run = begun("a", failure=FailureConfig(max_failures=1), num_samples=3)
    for _ in range(3):
        run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.fails("t0")
    run.exits("t0")  # t2 has its place
    assert list(run.machine.placement.queue) == ["t0"]
    run.leaves("a")
    assert run.machine.placement.waits == {"t0": WaitsFor.CHECKPOINT}
    run.commit("t0", 0)
    assert list(run.machine.placement.queue) == ["t0"]


def test_a_trial_returns_to_the_node_that_has_its_checkpoint() -> None:
    run = begun("a", "b", failure=FailureConfig(max_failures=-1), resources=None)
    run.suggest({"CPU": 1})
    run.suggest({"CPU": 2})
    run.start("t0", "t1")
    run.report("t1", checkpoint=True)
    run.fails("t0")
    run.exits("t0")
    run.fails("t1")
    assert where(run.exits("t1")) == [("b",)]


def test_a_restore_begins_without_nodes_and_knows_their_names() -> None:
    run = begun("a", "b", failure=FailureConfig(max_failures=1))
    run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.crash()
    effects = run.resume()
    assert launches(effects) == []
    assert [one for one in effects if isinstance(one, Commit)]
    assert run.machine.placement.waits == {"t0": WaitsFor.CHECKPOINT}
    with pytest.raises(InvalidTransition, match="the node a, whose name is taken"):
        run.joins("a")
    run.joins("a-2")
    assert where(run.commit("t0", 0)) == [("a-2",)]


def test_news_of_nodes_that_are_not_there_change_nothing() -> None:
    run = begun("a")
    run.leaves("a")
    assert [run.is_leaving("a"), run.leaves("a"), run.leaves("x")] == [[], [], []]


def test_an_offer_that_can_never_suffice_ends_the_run_at_once() -> None:
    offer = (NodeKind(name="gpu", resources={"CPU": 4.0, "GPU": 1.0}, most=2),)
    run = begun(offer=offer, resources=None)
    effects = run.suggest(PlacementGroupFactory([{"GPU": 1}] * 3))
    (finish,) = [effect for effect in effects if isinstance(effect, Finish)]
    assert finish.message == (
        "trial t0 requests 3 bundles of {'GPU': 1} (PACK), but the cluster offers 'gpu' nodes "
        "with {'CPU': 4.0, 'GPU': 1.0} (at most 2): it can never start"
    )


@pytest.mark.parametrize(
    ("resources", "fits"),
    [({"CPU": 2}, True), ({"CPU": 3}, False), ({"licence": 1}, False)],
)
def test_a_kind_that_says_nothing_is_judged_when_no_other_node_is_waited_for(
    resources: Mapping[str, float], fits: bool
) -> None:
    run = begun(resources=None)
    run.suggest(resources)
    run.joins("a")
    assert run.machine.ending is None
    message = ended(run.settles("b (no route to host)"))
    assert ("{'CPU': 2.0} on a" in message) is not fits
    assert message.endswith("Not there: b (no route to host)") is not fits


def ended(effects: list[Effect]) -> str:
    """Why the run has ended; "" if it has not."""
    return "".join(effect.message for effect in effects if isinstance(effect, Finish))


UNLIKE = NodeKind(name="ssh", resources={"disk": 1.0}, most=2, detects=["CPU", "GPU", "memory"])


def test_a_request_that_only_a_late_node_satisfies_waits_for_it() -> None:
    run = begun("a", offer=(UNLIKE,), resources=None)
    run.suggest({"CPU": 4})
    assert run.machine.ending is None
    run.joins("b", {"CPU": 4.0, "disk": 1.0})
    assert run.trial("t0").status is Status.STARTING


def test_a_request_that_no_node_satisfies_fails_when_the_last_one_has_joined() -> None:
    run = begun("a", offer=(UNLIKE,), resources=None)
    run.suggest({"CPU": 8})
    finish = ended(run.joins("b", {"CPU": 4.0, "disk": 1.0, "memory": 1e9}))
    assert finish == (
        "trial t0 requests {'CPU': 8}, but the cluster offers 'ssh' nodes (at most 2): "
        "{'CPU': 2.0} on a, {'CPU': 4.0, 'disk': 1.0} on b: it can never start"
    )


def test_it_fails_sooner_if_no_late_node_could_satisfy_it() -> None:
    run = begun("a", offer=(UNLIKE,), resources=None)
    request = PlacementGroupFactory([{"CPU": 4}] * 2, "STRICT_SPREAD")
    assert "{'CPU': 2.0} on a: it can never start" in ended(run.suggest(request))


@pytest.mark.parametrize("resources", [{"disk": 2}, {"licence": 1}])
def test_what_no_node_finds_out_by_itself_is_refused_at_once(
    resources: Mapping[str, float],
) -> None:
    run = begun(offer=(UNLIKE,), resources=None)
    assert "'ssh' nodes with {'disk': 1.0} (at most 2)" in ended(run.suggest(resources))


def test_an_elastic_cluster_grows_for_a_request_that_another_node_may_satisfy() -> None:
    run = begun("a", offer=(UNLIKE,), resources=None)
    run.suggest({"CPU": 4})
    assert demand(run.machine, None).wanted == {"ssh": 1}
    run.joins("b")
    assert demand(run.machine, None).wanted == {"ssh": 0}


def test_a_kind_that_may_still_fit_is_waited_for() -> None:
    run = begun(offer=(NodeKind(name="small"), NodeKind(name="large")), resources=None)
    run.suggest({"CPU": 9})
    run.joins("a", kind="small")
    assert run.machine.ending is None
    run.joins("b", {"CPU": 9.0}, kind="large")
    assert run.trial("t0").status is Status.STARTING


def test_a_clone_waits_for_the_answer_about_the_checkpoint_that_it_begins_with() -> None:
    class Cloning(TrialScheduler):
        """The second trial becomes a copy of the first at its first report."""

        def decide(self, view: View, event: Observation) -> Sequence[Decision]:
            if not isinstance(event, TrialReported) or event.trial_id != "t1":
                return ()
            return [CloneTrial(trial_id="t1", source="t0", config={"lr": 0.1})]

    run = begun("a", policy=Cloning(), scheduler="Cloning")
    run.suggest()
    run.suggest()
    run.joins("b")
    run.start("t0", "t1")
    run.report("t0", checkpoint=True)
    run.report("t1")
    run.leaves("a")
    run.returns("t1")
    assert launches(run.exits("t1")) == []
    assert run.machine.placement.waits == {"t1": WaitsFor.CHECKPOINT}
    (launch,) = launches(run.commit("t0", 0))
    assert (launch.trial_id, launch.origin is not None) == ("t1", True)
    assert launch.allocation.places[0].node == "b"


def test_a_request_for_nothing_goes_to_the_least_used_node() -> None:
    run = begun("a", "b", resources=None)
    assert [where(run.suggest({"CPU": 0})) for _ in range(3)] == [[("a",)], [("b",)], [("a",)]]


def eventful() -> Rehearsal:
    """A run with a node that has left and one that will."""
    run = begun("a", "b", failure=FailureConfig(max_failures=1))
    for _ in range(3):
        run.suggest()
    run.is_leaving("b")
    run.joins("c", {"CPU": 3, "memory": 5e9})
    run.leaves("a")
    return run


def test_a_snapshot_has_the_nodes() -> None:
    run = eventful()
    read = from_snapshot(snapshot(run.machine))
    check(read)
    assert facts(read) == facts(run.machine)


def test_a_journal_that_begins_with_a_snapshot_has_the_nodes() -> None:
    run, machine = eventful(), Machine()
    machine.replay(through_journal(recalled(run.machine), run.now).event, now=run.now)
    check(machine)
    assert facts(machine) == facts(run.machine)
