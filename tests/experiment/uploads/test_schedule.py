"""Whose artifacts are sent, and when."""

from __future__ import annotations

from holdfast.experiment.uploads.publishing import ArtifactRounds


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
