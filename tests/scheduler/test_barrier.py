"""Ranks that report in step, and out of step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.barrier import AllReturned, Barrier, Met, OutOfStep, RankReport


def report(rank: int, iteration: int = 1, **fields: Any) -> RankReport:
    return RankReport(
        rank=rank,
        iteration=iteration,
        metrics=fields.pop("metrics", {"loss": rank}),
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
        assert barrier.reported(report(rank)) is None
        assert set(barrier.missing) == set(order[number + 1 :])
    met = barrier.reported(report(last))
    assert isinstance(met, Met)
    assert [each.rank for each in met.reports] == sorted(order)
    assert barrier.missing == ()


def test_they_meet_again_after_the_answer_and_return_together() -> None:
    barrier = Barrier(2, iteration=4)
    for iteration in (5, 6):
        barrier.reported(report(1, iteration))
        assert isinstance(barrier.reported(report(0, iteration)), Met)
        barrier.answered()
    assert barrier.returned(0) is None
    assert barrier.returned(1) == AllReturned()


def test_the_checkpoint_has_the_parts_of_those_that_gave_one() -> None:
    barrier = Barrier(3, iteration=0)
    barrier.reported(report(2, has_files=True))
    barrier.reported(report(1))
    met = barrier.reported(report(0, has_files=True))
    assert isinstance(met, Met)
    assert met.parts == (0, 2)


def test_a_rank_that_returns_while_others_report_is_named() -> None:
    barrier = Barrier(3, iteration=7)
    barrier.reported(report(2, 8))
    outcome = barrier.returned(1)
    assert isinstance(outcome, OutOfStep)
    assert outcome.rank == 1
    assert "returned after report 7, but rank 2 called report() again" in outcome.text


def test_a_rank_that_reports_when_another_has_returned_is_not_to_blame() -> None:
    barrier = Barrier(2, iteration=0)
    barrier.returned(1)
    outcome = barrier.reported(report(0))
    assert isinstance(outcome, OutOfStep)
    assert outcome.rank == 1


def test_metrics_that_not_all_ranks_report_are_reported_by_rank() -> None:
    barrier = Barrier(3, iteration=0)
    barrier.reported(report(0, metrics={"loss": 1, "lr": 1}))
    barrier.reported(report(1, metrics={"loss": 1, "lr": 2}))
    met = barrier.reported(report(2, metrics={"loss": 1, "acc": 1}))
    assert isinstance(met, Met)
    assert met.other_keys == {2: ("acc", "lr")}


@pytest.mark.parametrize("iteration", [1, 3])
def test_a_report_that_cannot_be_is_refused(iteration: int) -> None:
    barrier = Barrier(2, iteration=1)
    with pytest.raises(ValueError, match="must report iteration 2"):
        barrier.reported(report(0, iteration))


def test_a_rank_that_waits_says_nothing() -> None:
    barrier = Barrier(2, iteration=0)
    barrier.reported(report(0))
    with pytest.raises(ValueError, match="rank 0 must report"):
        barrier.reported(report(0))
    with pytest.raises(ValueError, match="rank 0 was not running"):
        barrier.returned(0)
