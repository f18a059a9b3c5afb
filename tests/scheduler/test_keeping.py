"""Checkpoints: committed, ranked, superseded, lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.effects import Commit, Discard, Launch, Reply
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import from_snapshot
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.trial import CheckpointRecord


def running(**checkpoint: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": 1}, checkpoint=CheckpointConfig(**checkpoint))
    run.suggest()
    run.start("t0")
    return run


def kept(run: Rehearsal) -> list[int]:
    return [checkpoint.index for checkpoint in run.trial("t0").checkpoints]


def keep_all(run: Rehearsal, scores: list[Any], name: str = "score") -> list[int]:
    """Report a checkpoint with each score and commit it; the indices that are kept at the end."""
    for index, score in enumerate(scores):
        run.report("t0", {} if score is None else {name: score}, checkpoint=True)
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


def test_all_are_kept_where_nothing_else_was_said() -> None:
    assert keep_all(running(), [1, 2, 3, 4]) == [0, 1, 2, 3]


def test_the_oldest_go_where_no_score_was_named() -> None:
    assert keep_all(running(num_to_keep=2), [9, 1, 1]) == [1, 2]


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


def test_commits_may_come_in_any_order() -> None:
    run = running(num_to_keep=1)
    for _ in range(3):
        run.report("t0", checkpoint=True)
    run.commit("t0", 2)
    run.commit("t0", 0)
    run.commit("t0", 1)
    assert kept(run) == [2]


def test_a_commit_of_one_that_is_gone_is_dropped() -> None:
    run = running(num_to_keep=1)
    keep_all(run, [1, 2])
    assert run.commit("t0", 0) == []
    assert kept(run) == [1]


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


def test_the_name_of_a_lost_checkpoint_is_not_given_again() -> None:
    run = running()
    keep_all(run, [1, 2])
    run.crash()
    run.handle(CheckpointLost(trial_id="t0", index=1, reason="no such folder"))
    run.resume()
    run.start("t0")
    run.report("t0", checkpoint=True)
    assert kept(run) == [0, 2]


def test_checkpoints_are_numbered_over_all_attempts() -> None:
    run = Rehearsal(capacity={"CPU": 1}, failure=FailureConfig(max_failures=1))
    run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.fails("t0")
    run.exits("t0")
    run.start("t0")
    run.report("t0", checkpoint=True)
    assert [(c.index, c.attempt, c.iteration) for c in run.trial("t0").checkpoints] == [
        (0, 1, 1),
        (1, 2, 2),
    ]


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
