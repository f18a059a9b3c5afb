"""A cluster grows with the queue, and gives back nodes that have had no work for a while."""

from __future__ import annotations

from holdfast.experiment.control.run_cluster import ElasticSize, Scale
from holdfast.scheduler.placing import Demand


def demand(wanted: int, *idle: str, here: str) -> Demand:
    return Demand(wanted={"slurm": wanted}, idle=idle, here=tuple(here))


def test_it_grows_with_the_demand_to_the_most() -> None:
    size = ElasticSize(1, 4, idle_s=60.0)
    assert size.look(demand(3, here="a"), 0.0) == Scale(count=3)
    assert size.look(demand(9, here="a"), 2.0) == Scale(count=4)


def test_without_work_the_least_stays() -> None:
    size = ElasticSize(1, 4, idle_s=60.0)
    nodes = "abc"
    assert size.look(demand(0, *nodes, here=nodes), 0.0) == Scale(count=3)
    assert size.look(demand(0, *nodes, here=nodes), 59.0) == Scale(count=3)
    assert size.look(demand(0, *nodes, here=nodes), 60.0) == Scale(count=1, surplus=("a", "b"))


def test_a_node_that_had_work_in_between_has_rested_less() -> None:
    size = ElasticSize(0, 4, idle_s=60.0)
    size.look(demand(1, "a", here="ab"), 0.0)
    size.look(demand(2, here="ab"), 30.0)
    assert size.look(demand(1, "a", here="ab"), 61.0) == Scale(count=2)
    assert size.look(demand(1, "a", here="ab"), 121.0) == Scale(count=1, surplus=("a",))


def test_nodes_that_the_queue_could_use_are_not_given_back() -> None:
    size = ElasticSize(0, 4, idle_s=0.0)
    assert size.look(demand(2, "a", here="ab"), 0.0) == Scale(count=2)
