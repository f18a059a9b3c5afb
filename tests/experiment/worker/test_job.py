"""The numbers of ranks by the nodes that they are on."""

from __future__ import annotations

from typing import Any

from holdfast.experiment.worker.job import Assignment, RankNode, parts_of


def assignment(**given: Any) -> Assignment:
    plain: dict[str, Any] = {
        "trial_id": "t",
        "trial_name": "t",
        "dirname": "t",
        "attempt": 1,
        "config": {},
        "iteration": 0,
        "time_total_s": 0.0,
        "next_checkpoint": 0,
        "checkpoint": None,
        "bundles": [{}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1}],
        "strategy": "PACK",
        "cpus": 3,
    }
    return Assignment(**{**plain, **given})


def test_ranks_on_the_controllers_machine_are_on_one_node() -> None:
    parts = parts_of(assignment(gpus=("0", "1")))
    assert [part.local_rank for part in parts] == [0, 1, 2]
    assert {part.local_world_size for part in parts} == {3}
    assert {part.node_rank for part in parts} == {0}
    assert {part.node for part in parts} == {RankNode()}
    assert [part.gpus for part in parts] == [("0", "1"), ("0", "1"), ()]


def test_ranks_are_counted_on_each_node_and_see_its_gpus_only() -> None:
    nodes = [
        RankNode("a", "10.0.0.1", ("0",)),
        RankNode("b", "10.0.0.2", ("3",)),
        RankNode("b", "10.0.0.2", ("3",)),
    ]
    parts = parts_of(assignment(nodes=nodes))
    assert [part.local_rank for part in parts] == [0, 0, 1]
    assert [part.local_world_size for part in parts] == [1, 2, 2]
    assert [part.node_rank for part in parts] == [0, 1, 1]
    assert {part.node_count for part in parts} == {2}
    assert [part.gpus for part in parts] == [("0",), ("3",), ()]


def test_what_a_worker_gets_over_the_wire_is_the_same() -> None:
    sent = assignment(nodes=[RankNode("a", "10.0.0.1", ("0",))], world_size=1)
    arrived = sent._replace(nodes=[["a", "10.0.0.1", ["0"]]])
    assert arrived.node == RankNode("a", "10.0.0.1", ["0"])
    assert arrived.node.address == "10.0.0.1"
