"""Whose artifacts are sent, and when."""

from __future__ import annotations

from holdfast.experiment.uploads.publishing import ArtifactRounds


def test_all_trials_have_their_turn_once_in_a_period() -> None:
    rounds = ArtifactRounds(period_s=300, with_checkpoints=True)
    assert rounds.take(1000, whole=True) is None
    assert rounds.due_in_s(1100) == 200
    assert rounds.take(1100, whole=False) == []
    assert rounds.take(1300, whole=False) is None
    assert rounds.due_in_s(1310) == 290


def test_between_come_the_trials_that_have_a_new_checkpoint() -> None:
    rounds = ArtifactRounds(period_s=300, with_checkpoints=True)
    rounds.take(1000, whole=True)
    for folder in ("b", "a", "b"):
        rounds.committed(folder)
    assert rounds.take(1010, whole=False) == ["a", "b"]
    assert rounds.take(1020, whole=False) == []


def test_publications_after_checkpoints_do_not_put_off_the_turn_of_all() -> None:
    rounds = ArtifactRounds(period_s=300, with_checkpoints=True)
    rounds.take(0, whole=True)
    turns = []
    for now in range(10, 620, 10):
        rounds.committed("a")
        turns += [now] * (rounds.take(now, whole=False) is None)
    assert turns == [300, 600]


def test_checkpoints_may_be_no_occasion() -> None:
    rounds = ArtifactRounds(period_s=300, with_checkpoints=False)
    rounds.take(0, whole=True)
    rounds.committed("a")
    assert rounds.take(10, whole=False) == []
    assert rounds.take(20, whole=True) is None
