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


class Members:
    """All trials of a population, by id. With `synch`, they are compared and changed together."""

    def __init__(self, *, synch: bool) -> None:
        self._synch = synch
        self._members: dict[str, Member] = {}

    def __getitem__(self, trial_id: str) -> Member:
        return self._members[trial_id]

    def add(self, trial_id: str) -> None:
        self._members[trial_id] = Member()

    @property
    def have_scores(self) -> bool:
        """Whether any trial has been compared."""
        return any(member.score is not None for member in self._members.values())

    def extremes(
        self, trials: Mapping[str, Trial], quantile: float
    ) -> tuple[list[str], list[str]]:
        """The worst and the best living trials with a score, `quantile` of them each.

        No trial is both.
        """
        scores = {
            trial_id: member.score
            for trial_id, member in self._members.items()
            if member.score is not None and not trials[trial_id].status.is_final
        }
        ranked = sorted(scores, key=scores.__getitem__)
        count = min(math.ceil(len(ranked) * quantile), len(ranked) // 2)
        return ranked[:count], ranked[len(ranked) - count :]

    def can_be_cloned(self, trial: Trial) -> bool:
        """Whether the trial's newest checkpoint is as good as its score.

        A trial that was not among the best when it was last compared may have saved long ago, when
        it was worse. Trials that change together have just saved.
        """
        member, newest = self._members[trial.trial_id], trial.newest_checkpoint
        if newest is None or trial.origin is not None or member.score == -math.inf:
            return False
        return self._synch or newest.iteration >= member.good_from

    def time_of_clone(self, source: Trial, time_attr: str) -> float:
        """The time of the source's last comparison, or of its newest checkpoint if that is
        older."""
        time, checkpoint = self._members[source.trial_id].time, source.checkpoints[-1]
        if time_attr == "training_iteration":
            return min(time, checkpoint.iteration)
        if time_attr == "time_total_s":
            return min(time, checkpoint.time_total_s)
        return time

    def paused(self, trials: Mapping[str, Trial]) -> list[str]:
        """The paused trials, those with the least training first."""
        paused = [t for t in self._members if trials[t].status is Status.PAUSED]
        return sorted(paused, key=lambda trial_id: self._members[trial_id].time)
