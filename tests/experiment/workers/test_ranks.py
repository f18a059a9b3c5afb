"""Ranks get numbers by the nodes of their bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import RankNode
from holdfast.experiment.workers.ranks import (
    AllReported,
    AllReturned,
    Barrier,
    OutOfStep,
    place_ranks,
    place_worker,
)
from holdfast.trial.events import Reported
from holdfast.trial.resources import Place
from holdfast.trial.trial import CheckpointRecord

PART = CheckpointRecord(index=0, iteration=1, attempt=1, files=1, size_bytes=1)


def report(iteration: int = 1, **fields: Any) -> Reported:
    return Reported(
        trial_id="t",
        attempt=1,
        iteration=iteration,
        metrics=fields.pop("metrics", {"loss": 0}),
        timestamp=0.0,
        time_this_iter_s=1.0,
        time_total_s=1.0,
        **fields,
    )


@given(st.integers(1, 8).flatmap(lambda n: st.permutations(range(n))))
def test_ranks_meet_when_the_last_of_them_has_reported(order: list[int]) -> None:
    barrier = Barrier(len(order), iteration=0)
    *early, last = order
    for number, rank in enumerate(early):
        assert barrier.reported(rank, report(metrics={"loss": rank})) is None
        assert set(barrier.missing) == set(order[number + 1 :])
    reported = barrier.reported(last, report(metrics={"loss": last}))
    assert isinstance(reported, AllReported)
    assert [each.metrics["loss"] for each in reported.reports] == sorted(order)
    assert barrier.missing == ()


def test_they_meet_again_after_the_answer_and_return_together() -> None:
    barrier = Barrier(2, iteration=4)
    for iteration in (5, 6):
        barrier.reported(1, report(iteration))
        assert isinstance(barrier.reported(0, report(iteration)), AllReported)
        barrier.answered()
    assert barrier.returned(0) is None
    assert barrier.returned(1) == AllReturned()


def test_the_checkpoint_has_the_parts_of_those_that_gave_one() -> None:
    barrier = Barrier(3, iteration=0)
    barrier.reported(2, report(checkpoint=PART))
    barrier.reported(1, report())
    reported = barrier.reported(0, report(checkpoint=PART))
    assert isinstance(reported, AllReported)
    assert reported.parts == (0, 2)


def test_a_rank_that_returns_while_others_report_is_named() -> None:
    barrier = Barrier(3, iteration=7)
    barrier.reported(2, report(8))
    outcome = barrier.returned(1)
    assert isinstance(outcome, OutOfStep)
    assert outcome.rank == 1
    assert "returned after report 7, but rank 2 called report() again" in outcome.text


def test_a_rank_that_reports_when_another_has_returned_is_not_to_blame() -> None:
    barrier = Barrier(2, iteration=0)
    barrier.returned(1)
    outcome = barrier.reported(0, report())
    assert isinstance(outcome, OutOfStep)
    assert outcome.rank == 1


def test_metrics_that_not_all_ranks_report_are_reported_by_rank() -> None:
    barrier = Barrier(3, iteration=0)
    barrier.reported(0, report(metrics={"loss": 1, "lr": 1}))
    barrier.reported(1, report(metrics={"loss": 1, "lr": 2}))
    reported = barrier.reported(2, report(metrics={"loss": 1, "acc": 1}))
    assert isinstance(reported, AllReported)
    assert reported.other_keys == {2: ("acc", "lr")}


@pytest.mark.parametrize("iteration", [1, 3])
def test_a_report_that_cannot_be_is_refused(iteration: int) -> None:
    barrier = Barrier(2, iteration=1)
    with pytest.raises(ValueError, match="must report iteration 2"):
        barrier.reported(0, report(iteration))


def test_a_rank_that_waits_says_nothing() -> None:
    barrier = Barrier(2, iteration=0)
    barrier.reported(0, report())
    with pytest.raises(ValueError, match="rank 0 must report"):
        barrier.reported(0, report())
    with pytest.raises(ValueError, match="rank 0 was not running"):
        barrier.returned(0)


@dataclass(frozen=True, slots=True)
class Known:
    address: str
    gpus: Sequence[str] = ()


KNOWN = {"a": Known("10.0.0.1", ("0", "1", "2")), "b": Known("10.0.0.2", ("GPU-7f", "GPU-80"))}


def place(node: str, *gpus: int) -> Place:
    return Place(node=node, amounts={}, gpus=gpus)


def test_a_worker_runs_where_its_first_bundle_is_with_the_gpus_of_all_that_are_there() -> None:
    seating = place_worker(
        [{"CPU": 1}, {"GPU": 1}, {"GPU": 1}], [place("a", 2), place("a", 0), place("b", 1)], KNOWN
    )
    assert seating.nodes == [RankNode("a", "10.0.0.1", ("0", "2"))]
    assert seating.bundles == [{"CPU": 1}, {"GPU": 1}, {"GPU": 1}]


def test_the_ranks_of_a_node_have_consecutive_numbers() -> None:
    bundles = [{}, {"CPU": 1}, {"CPU": 2}, {"CPU": 3}, {"CPU": 4}]
    places = [place("b"), place("b", 0), place("a", 1), place("b", 1), place("a")]
    seating = place_ranks(bundles, places, KNOWN)
    assert [node.name for node in seating.nodes] == ["b", "b", "a", "a"]
    assert seating.bundles == [{}, {"CPU": 1}, {"CPU": 3}, {"CPU": 2}, {"CPU": 4}]
    assert seating.nodes[0] == RankNode("b", "10.0.0.2", ("GPU-7f", "GPU-80"))
    assert seating.nodes[2] == RankNode("a", "10.0.0.1", ("1",))


def test_the_coordinators_node_does_not_count() -> None:
    seating = place_ranks([{}, {"CPU": 1}], [place("b"), place("a")], KNOWN)
    assert [node.name for node in seating.nodes] == ["a"]
