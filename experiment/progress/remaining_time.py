"""Computes how much of a run is done, and when it will end, from its trials. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.experiment.progress.eta import (
    Course,
    Throughput,
    epochs_of,
    last_iteration,
    share_done,
    time_left_s,
)
from holdfast.experiment.progress.finished_stats import FinishedStats
from holdfast.trial.trial import Status, Trial

_UNKNOWN = -1
# Before so much is done, or trained, the first iterations decide, which include imports: 1% of a
# run of 47 s was estimated to 27 minutes.
_SHARE, _TRAINED_S = 0.05, 30.0


class RemainingTime:
    """The estimates of a Summarizer; no trial trains more than `most_iterations`."""

    def __init__(self, most_iterations: float | None = None) -> None:
        self._bound = most_iterations
        self._throughput = Throughput()
        # Cached, because looking up 1,000 configurations takes 15 ms.
        self._epochs: dict[str, int | None] = {}

    def last_iteration(self, trial: Trial) -> int | None:
        epochs = self._epochs.get(trial.trial_id, _UNKNOWN)
        if epochs == _UNKNOWN:
            epochs = self._epochs[trial.trial_id] = epochs_of(trial.config)
        return last_iteration(trial, self._bound, epochs)

    def estimate(
        self, alive: Sequence[Trial], ended: FinishedStats, total: int | None, now: float
    ) -> tuple[float | None, float | None]:
        """The fraction that is done (0 to 1) and the seconds that are left; None if not known."""
        courses = [course for trial in alive if (course := self._course(trial, now))]
        trained_s = sum(course.spent_s + course.since_s for course in courses) + ended.time_s
        finished = ended.counts.total()
        at_work = sum(trial.status.has_worker for trial in alive)
        self._throughput.record(now, at_work, finished, trained_s)
        if not total:
            return None, None
        past = ended.past
        begun = sum(share_done(course, past) for course in courses)
        left_s = time_left_s(
            courses,
            past,
            to_come=max(0, total - finished - len(alive)),
            slots=self._throughput.slots,
            overhead_s=self._throughput.overhead_s,
        )
        share = min(1.0, (finished + begun) / total)
        is_early = share < _SHARE and trained_s < _TRAINED_S
        return share, None if is_early else left_s

    def _course(self, trial: Trial, now: float) -> Course | None:
        if trial.status is Status.STOPPING:
            return None
        has_reported = trial.status is Status.RUNNING and trial.iteration > trial.resumed_from
        return Course(
            spent_s=trial.time_total_s,
            since_s=max(0.0, now - trial.reported_at) if has_reported else 0.0,
            iteration=trial.iteration,
            last=self.last_iteration(trial),
            at_work=trial.status.has_worker,
        )
