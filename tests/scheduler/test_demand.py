"""How many nodes an experiment could use, and which it does not need."""

from __future__ import annotations

from typing import Any

from holdfast.experiment.control.run_cluster import ElasticSize, Scale
from holdfast.scheduler.demand import Demand, demand
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.testing.rehearsal import Rehearsal, facts
from holdfast.trial.config import FailureConfig
from holdfast.trial.resources import NodeKind, PlacementGroupFactory

FOUR = NodeKind(name="four", resources={"CPU": 4.0}, most=5)
GPUS = NodeKind(name="gpus", resources={"CPU": 4.0, "GPU": 2.0}, most=2)
UNKNOWN = NodeKind(name="unknown", most=3)


def begun(*offer: NodeKind, **spec: Any) -> Rehearsal:
    return Rehearsal(capacity={}, offer=offer, **spec)


def asked(run: Rehearsal) -> Demand:
    before = facts(run.machine)
    samples = run.machine.spec.num_samples
    found = demand(run.machine, None if samples < 0 else samples)
    assert facts(run.machine) == before, "a question changes something"
    return found


def test_the_search_could_use_nodes_before_it_has_suggested_anything() -> None:
    for samples, wanted in ((1, 1), (4, 1), (5, 2), (20, 5), (1000, 5), (-1, 5)):
        run = begun(FOUR, num_samples=samples)
        assert (asked(run).wanted, asked(run).idle) == ({"four": wanted}, ()), samples


def test_an_endless_search_without_a_limit_asks_for_one_more() -> None:
    run = begun(NodeKind(name="four", resources={"CPU": 1.0}), num_samples=-1)
    run.joins("a", {"CPU": 1.0})
    run.suggest()
    assert asked(run).wanted == {"four": 2}


def test_a_kind_that_says_nothing_has_room_for_one_until_a_node_has_joined() -> None:
    run = begun(UNKNOWN, num_samples=4)
    assert asked(run).wanted == {"unknown": 3}
    run.joins("a", {"CPU": 2.0})
    assert asked(run).wanted == {"unknown": 2}


def test_gpus_are_asked_for_only_by_those_who_need_them() -> None:
    run = begun(FOUR, GPUS, resources=None)
    run.suggest({"CPU": 1})
    assert (asked(run).wanted, asked(run).idle) == ({"four": 1, "gpus": 0}, ())
    run.joins("a", {"CPU": 4.0}, kind="four")
    run.suggest({"GPU": 1})
    assert (asked(run).wanted, asked(run).idle) == ({"four": 1, "gpus": 1}, ())


def test_the_bundles_of_a_trial_need_as_many_nodes_as_their_strategy_says() -> None:
    for strategy, nodes in (("PACK", 1), ("STRICT_SPREAD", 3)):
        run = begun(FOUR, resources=None)
        run.suggest(PlacementGroupFactory([{"CPU": 1}] * 3, strategy))
        assert asked(run).wanted == {"four": nodes}


def test_what_cannot_be_had_is_not_asked_for() -> None:
    run = begun(FOUR, resources=None)
    run.suggest(PlacementGroupFactory([{"CPU": 4}] * 5))
    run.joins("a", {"CPU": 4.0})
    run.is_leaving("a")
    run.leaves("a")
    assert asked(run).wanted == {"four": 5}
    run.suggest(PlacementGroupFactory([{"CPU": 4}] * 9, least_bundles=2))
    assert asked(run).wanted == {"four": 5}


def test_an_elastic_trial_could_use_more_nodes_while_it_runs() -> None:
    run = begun(FOUR, resources=None, failure=FailureConfig(max_failures=1))
    run.joins("a", {"CPU": 4.0})
    run.suggest(PlacementGroupFactory([{"CPU": 2}] * 5, least_bundles=1))
    run.handle(SearchEnded())
    assert run.trial("t0").bundles == 2
    assert asked(run).wanted == {"four": 3}


def test_a_node_that_nothing_needs_is_idle() -> None:
    run = begun(FOUR, num_samples=2)
    for node in "abc":
        run.joins(node, {"CPU": 4.0})
    run.suggest()
    assert (asked(run).wanted, asked(run).idle) == ({"four": 1}, ("b", "c"))
    run.is_leaving("b")
    assert asked(run).idle == ("c",)
    assert asked(run).here == ("a", "c")


def test_a_node_that_was_given_back_is_not_asked_for_again_while_it_is_ending() -> None:
    run, size = begun(FOUR, num_samples=1), ElasticSize(1, 4, idle_s=0.0)
    run.joins("a", {"CPU": 4.0})
    run.joins("b", {"CPU": 4.0})
    run.suggest()
    assert size.scale(asked(run), 0.0) == Scale(count=1, surplus=("b",))
    run.is_leaving("b")
    assert size.scale(asked(run), 2.0) == Scale(count=1)


def test_a_run_that_ends_asks_for_nothing_but_what_it_uses() -> None:
    run = begun(FOUR, num_samples=9)
    run.joins("a", {"CPU": 4.0})
    run.joins("b", {"CPU": 4.0})
    run.suggest()
    run.handle(EndOrdered(reason="budget"))
    assert (asked(run).wanted, asked(run).idle) == ({"four": 1}, ("b",))


def demanded(wanted: int, *idle: str, here: str) -> Demand:
    return Demand(wanted={"slurm": wanted}, idle=idle, here=tuple(here))


def test_it_grows_with_the_demand_to_the_most() -> None:
    size = ElasticSize(1, 4, idle_s=60.0)
    assert size.scale(demanded(3, here="a"), 0.0) == Scale(count=3)
    assert size.scale(demanded(9, here="a"), 2.0) == Scale(count=4)


def test_without_work_the_least_stays() -> None:
    size = ElasticSize(1, 4, idle_s=60.0)
    nodes = "abc"
    assert size.scale(demanded(0, *nodes, here=nodes), 0.0) == Scale(count=3)
    assert size.scale(demanded(0, *nodes, here=nodes), 59.0) == Scale(count=3)
    assert size.scale(demanded(0, *nodes, here=nodes), 60.0) == Scale(count=1, surplus=("a", "b"))


def test_a_node_that_had_work_in_between_has_rested_less() -> None:
    size = ElasticSize(0, 4, idle_s=60.0)
    size.scale(demanded(1, "a", here="ab"), 0.0)
    size.scale(demanded(2, here="ab"), 30.0)
    assert size.scale(demanded(1, "a", here="ab"), 61.0) == Scale(count=2)
    assert size.scale(demanded(1, "a", here="ab"), 121.0) == Scale(count=1, surplus=("a",))


def test_nodes_that_the_queue_could_use_are_not_given_back() -> None:
    size = ElasticSize(0, 4, idle_s=0.0)
    assert size.scale(demanded(2, "a", here="ab"), 0.0) == Scale(count=2)
