"""The members of a population: when each trial was last compared, and its score then."""

from __future__ import annotations

import math
from collections.abc import Mapping

from holdfast.dataclass import dataclass
from holdfast.trial.trial import Status, Trial


@dataclass(slots=True)
class Member:
    """A trial of the population: its newest score (more is better) and the time of that score.

    Checkpoints from iteration `good_from` on are as good as the score. `changes` counts how often
    the trial was cloned from another one. `is_to_yield`: with its next checkpoint, the trial makes
    way for trials that wait for resources.
    """

    time: float = 0.0
    score: float | None = None
    good_from: float = 0
    changes: int = 0
    is_to_yield: bool = False


Members = Mapping[str, Member]


def have_scores(members: Members) -> bool:
    """Whether any trial has been compared."""
    return any(member.score is not None for member in members.values())


def extremes(
    members: Members, trials: Mapping[str, Trial], quantile: float
) -> tuple[list[str], list[str]]:
    """The worst and the best living trials with a score, `quantile` of them each.

    No trial is both.
    """
    scores = {
        trial_id: member.score
        for trial_id, member in members.items()
        if member.score is not None and not trials[trial_id].status.is_final
    }
    ranked = sorted(scores, key=scores.__getitem__)
    count = min(math.ceil(len(ranked) * quantile), len(ranked) // 2)
    return ranked[:count], ranked[len(ranked) - count :]


def can_be_cloned(member: Member, trial: Trial, *, synch: bool) -> bool:
    """Whether the trial's newest checkpoint is as good as its score.

    A trial that was not among the best when it was last compared may have saved long ago, when it
    was worse. Trials that change together (`synch`) have just saved.
    """
    newest = trial.newest_checkpoint
    if newest is None or trial.origin is not None or member.score == -math.inf:
        return False
    return synch or newest.iteration >= member.good_from


def time_of_clone(member: Member, trial: Trial, time_attr: str) -> float:
    """The time of the source's last comparison, or of its newest checkpoint if that is older."""
    checkpoint = trial.checkpoints[-1]
    if time_attr == "training_iteration":
        return min(member.time, checkpoint.iteration)
    if time_attr == "time_total_s":
        return min(member.time, checkpoint.time_total_s)
    return member.time


def paused(members: Members, trials: Mapping[str, Trial]) -> list[str]:
    """The paused trials, those with the least training first."""
    several = [trial_id for trial_id in members if trials[trial_id].status is Status.PAUSED]
    return sorted(several, key=lambda trial_id: members[trial_id].time)
