"""Checkpoints: committed, ranked, superseded, lost."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.effects import Commit, Discard, Launch, Reply
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.state import ranked, score_of, superseded
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import CheckpointConfig, FailureConfig
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


def running(**checkpoint: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": 1}, checkpoint=CheckpointConfig(**checkpoint))
    run.suggest()
    run.start("t0")
    return run


def kept(run: Rehearsal) -> list[int]:
    return [checkpoint.index for checkpoint in run.trial("t0").checkpoints]


def keep_all(run: Rehearsal, scores: list[Any]) -> list[int]:
    """Report a checkpoint with each score and commit it; the indices that are kept at the end."""
    for index, score in enumerate(scores):
        run.report("t0", {} if score is None else {"score": score}, checkpoint=True)
        run.commit("t0", index)
    return kept(run)


def test_a_reported_checkpoint_must_be_committed_before_the_report_is_answered() -> None:
    run = running()
    commit, reply = run.report("t0", checkpoint=True)
    assert isinstance(commit, Commit)
    assert commit.checkpoint == CheckpointRecord(
        index=0, iteration=1, attempt=1, files=1, size_bytes=10, time_total_s=0.5
    )
    assert isinstance(reply, Reply)
    assert run.commit("t0", 0) == []
    assert run.trial("t0").checkpoints[0].committed


def test_what_goes_is_discarded_when_the_newer_one_is_committed_not_before() -> None:
    run = running(num_to_keep=1)
    run.report("t0", checkpoint=True)
    run.commit("t0", 0)
    assert not [e for e in run.report("t0", checkpoint=True) if isinstance(e, Discard)]
    (discard,) = run.commit("t0", 1)
    assert isinstance(discard, Discard)
    assert discard.checkpoint.index == 0
    assert kept(run) == [1]


@pytest.mark.parametrize(
    ("order", "scores", "expected"),
    [
        ("max", [3, 1, 2, 0], [0, 3]),
        ("min", [3, 1, 2, 4], [1, 3]),
        ("max", [1, float("nan"), 0], [0, 2]),
        ("min", [1, float("nan"), 2], [0, 2]),
        ("max", [1, None, 0], [0, 2]),
        ("max", [-1, "good", True], [0, 2]),
        ("max", [1, float("inf"), 0], [0, 2]),
        ("min", [1, float("-inf"), 2], [0, 2]),
        ("max", [float("inf"), float("-inf"), float("nan"), None, 0, -1], [4, 5]),
        ("max", [2, 2, 0], [1, 2]),
    ],
)
def test_the_best_and_the_newest_are_kept(
    order: str, scores: list[Any], expected: list[int]
) -> None:
    run = running(num_to_keep=1, checkpoint_score_attribute="score", checkpoint_score_order=order)
    assert keep_all(run, scores) == expected


def test_a_score_may_be_nested_or_a_count_of_holdfast() -> None:
    run = running(num_to_keep=1, checkpoint_score_attribute="eval/score")
    run.report("t0", {"eval": {"score": 5}}, checkpoint=True)
    assert run.trial("t0").checkpoints[0].score == 5
    run = running(num_to_keep=1, checkpoint_score_attribute="training_iteration")
    run.report("t0", checkpoint=True)
    assert run.trial("t0").checkpoints[0].score == 1


@pytest.mark.parametrize("attribute", ["score", "training_iteration"])
def test_a_checkpoint_without_a_report_has_the_score_of_the_newest_row(attribute: str) -> None:
    run = running(checkpoint_score_attribute=attribute)
    run.report("t0", {"score": 1})
    (commit,) = run.save("t0")
    assert isinstance(commit, Commit)
    assert commit.checkpoint.score == 1
    assert run.trial("t0").newest_checkpoint == commit.checkpoint


def test_one_that_is_under_way_is_neither_counted_nor_discarded() -> None:
    run = running(num_to_keep=1)
    for _ in range(3):
        run.report("t0", checkpoint=True)
    assert run.commit("t0", 0) == []
    assert kept(run) == [0, 1, 2]


def test_a_lost_checkpoint_is_forgotten_and_the_one_before_it_resumed_from() -> None:
    run = running()
    keep_all(run, [1, 2])
    run.crash()
    lost = CheckpointLost(trial_id="t0", index=1, reason="no such folder")
    assert run.handle(lost) == []
    effects = run.resume()
    (launch,) = [effect for effect in effects if isinstance(effect, Launch)]
    assert launch.checkpoint is not None
    assert launch.checkpoint.index == 0


def test_scores_and_their_order_outlive_a_restore() -> None:
    run = running(num_to_keep=2, checkpoint_score_attribute="score")
    keep_all(run, [3, float("inf"), 9, 1])
    assert kept(run) == [0, 2, 3]
    plain = json.loads(json.dumps(snapshot(run.machine)))
    again = from_snapshot(plain)
    assert again.trials["t0"].checkpoints == run.trial("t0").checkpoints
    assert again.spec.checkpoint == run.machine.spec.checkpoint
    run.crash()
    run.resume()
    run.start("t0")
    run.report("t0", {"score": 2}, checkpoint=True)
    (discard,) = run.commit("t0", 4)
    assert isinstance(discard, Discard)
    assert discard.checkpoint.index == 3
    assert kept(run) == [0, 2, 4]


@given(st.lists(st.sampled_from(["report", "commit", "fail", "crash"]), min_size=8, max_size=30))
def test_what_an_attempt_began_from_stays_until_it_has_one_of_its_own(steps: list[str]) -> None:
    """For any scores, and any checkpoints that are still being committed from earlier attempts."""
    run = Rehearsal(
        capacity={"CPU": 1},
        checkpoint=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score"),
        failure=FailureConfig(max_failures=-1),
    )
    run.suggest()
    run.start("t0")
    began_from, reported = None, 0
    for step in steps:
        trial = run.trial("t0")
        if step == "report":
            run.report("t0", {"score": -reported}, checkpoint=True)
            reported += 1
        elif step == "commit":
            waiting = [c.index for c in trial.checkpoints if not c.committed]
            if waiting:
                run.commit("t0", waiting[-1 if reported % 2 else 0])
        else:
            if step == "fail":
                run.fails("t0")
                run.exits("t0")
            else:
                run.crash()
                run.resume()
            began_from = run.trial("t0").newest_checkpoint
            run.start("t0")
        trial = run.trial("t0")
        has_its_own = any(c.committed and c.attempt == trial.attempt for c in trial.checkpoints)
        known = [checkpoint.index for checkpoint in trial.checkpoints]
        assert has_its_own or began_from is None or began_from.index in known
