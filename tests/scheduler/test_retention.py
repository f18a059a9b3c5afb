"""Which checkpoints may be removed, and how they are ranked."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.state import ranked, score_of, superseded
from holdfast.trial.config import CheckpointConfig
from holdfast.trial.trial import CheckpointRecord, CheckpointUploadMode


def made(*scores: float | None, committed: bool = True) -> list[CheckpointRecord]:
    return [
        CheckpointRecord(
            index=index,
            iteration=index + 1,
            attempt=1,
            files=1,
            size_bytes=1,
            score=score,
            committed=committed,
        )
        for index, score in enumerate(scores)
    ]


def by_score(keep: int | None = None, order: str = "max") -> CheckpointConfig:
    return CheckpointConfig(
        num_to_keep=keep, checkpoint_score_attribute="score", checkpoint_score_order=order
    )


def indices(checkpoints: list[CheckpointRecord]) -> list[int]:
    return [checkpoint.index for checkpoint in checkpoints]


@pytest.mark.parametrize(
    ("row", "score"),
    [
        ({"score": 1}, 1.0),
        ({"score": 0.5}, 0.5),
        ({"eval": {"score": 2}}, None),
        ({"score": float("nan")}, None),
        ({"score": float("inf")}, None),
        ({"score": float("-inf")}, None),
        ({"score": -(2**63)}, -float(2**63)),
        ({"score": True}, None),
        ({"score": "1"}, None),
        ({"score": None}, None),
        ({}, None),
    ],
)
def test_only_a_number_is_a_score(row: dict[str, Any], score: float | None) -> None:
    assert score_of(row, "score") == score


def test_a_nested_score_is_found_and_none_is_wanted_without_an_attribute() -> None:
    assert score_of({"eval": {"score": 2}}, "eval/score") == 2.0
    assert score_of({"score": 2}, None) is None


def test_the_best_come_first_among_equals_the_newer_and_the_unscored_last() -> None:
    checkpoints = made(1, None, 3, 1, None)
    assert indices(ranked(checkpoints, by_score())) == [2, 3, 0, 4, 1]
    assert indices(ranked(checkpoints, by_score(order="min"))) == [3, 0, 2, 4, 1]


@pytest.mark.parametrize("keep", [None, 1, 2, 3])
def test_nothing_goes_of_what_is_within_the_number(keep: int | None) -> None:
    assert superseded(made(*range(keep or 5)), by_score(keep)) == []


def test_an_uncommitted_one_is_neither_counted_nor_removed() -> None:
    assert superseded([*made(1, 2), *made(0, 0, 0, committed=False)], by_score(2)) == []
    assert superseded(made(1, 2, 3, committed=False), by_score(1)) == []


def test_what_others_need_stays_and_takes_no_place_of_those_to_keep() -> None:
    checkpoints = made(5, 1, 2, 3)
    assert indices(superseded(checkpoints, by_score(1))) == [1, 2]
    assert indices(superseded(checkpoints, by_score(1), needed={1})) == [2]
    assert indices(superseded(checkpoints, by_score(2), needed=[0, 1])) == [2]


def test_one_that_others_need_and_that_is_gone_changes_nothing() -> None:
    assert indices(superseded(made(5, 1, 2), by_score(1), needed={7})) == [1]


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=8),
    st.integers(1, 4),
    st.sampled_from(["max", "min"]),
    st.sets(st.integers(0, 7), max_size=3),
)
def test_the_newest_the_best_and_the_needed_always_stay(
    scores: list[float | None], keep: int, order: str, needed: set[int]
) -> None:
    checkpoints = made(*scores)
    config = by_score(keep, order)
    gone = indices(superseded(checkpoints, config, needed=needed))
    stay = [index for index in range(len(scores)) if index not in gone]
    best = indices(ranked(checkpoints, config)[:keep])
    assert set(best) <= set(stay)
    assert not needed & set(gone)
    assert len(stay) <= keep + 1 + len(needed)
    if scores:
        assert len(scores) - 1 in stay


def test_the_newest_in_storage_is_kept_in_addition_to_those_on_this_machine() -> None:
    known = [
        replace(checkpoint, upload=upload)
        for checkpoint, upload in zip(
            made(None, None, None, None),
            map(CheckpointUploadMode, ("SYNC", "ASYNC", "NO_UPLOAD", "NO_UPLOAD")),
            strict=True,
        )
    ]
    assert indices(superseded(known, CheckpointConfig(num_to_keep=1))) == [0, 2]
