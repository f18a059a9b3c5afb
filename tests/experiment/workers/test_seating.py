"""Ranks get numbers by the nodes of their bundles."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import RankNode
from holdfast.experiment.workers.ranks import seat_ranks, seat_worker
from holdfast.trial.resources import Place


@dataclass(frozen=True, slots=True)
class Known:
    address: str
    gpus: Sequence[str] = ()


KNOWN = {"a": Known("10.0.0.1", ("0", "1", "2")), "b": Known("10.0.0.2", ("GPU-7f", "GPU-80"))}


def place(node: str, *gpus: int) -> Place:
    return Place(node=node, amounts={}, gpus=gpus)


def test_a_worker_runs_where_its_first_bundle_is_with_the_gpus_of_all_that_are_there() -> None:
    seating = seat_worker(
        [{"CPU": 1}, {"GPU": 1}, {"GPU": 1}], [place("a", 2), place("a", 0), place("b", 1)], KNOWN
    )
    assert seating.nodes == [RankNode("a", "10.0.0.1", ("0", "2"))]
    assert seating.bundles == [{"CPU": 1}, {"GPU": 1}, {"GPU": 1}]


def test_the_ranks_of_a_node_have_consecutive_numbers() -> None:
    bundles = [{}, {"CPU": 1}, {"CPU": 2}, {"CPU": 3}, {"CPU": 4}]
    places = [place("b"), place("b", 0), place("a", 1), place("b", 1), place("a")]
    seating = seat_ranks(bundles, places, KNOWN)
    assert [node.name for node in seating.nodes] == ["b", "b", "a", "a"]
    assert seating.bundles == [{}, {"CPU": 1}, {"CPU": 3}, {"CPU": 2}, {"CPU": 4}]
    assert seating.nodes[0] == RankNode("b", "10.0.0.2", ("GPU-7f", "GPU-80"))
    assert seating.nodes[2] == RankNode("a", "10.0.0.1", ("1",))


def test_the_coordinators_node_does_not_count() -> None:
    seating = seat_ranks([{}, {"CPU": 1}], [place("b"), place("a")], KNOWN)
    assert [node.name for node in seating.nodes] == ["a"]
