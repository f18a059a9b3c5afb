"""What a restore makes of a trial that it finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.scheduler.effects import Commit
from holdfast.scheduler.events import Resumed
from holdfast.trial.lifecycle import Interrupted, Reopened, TrialEvent, Unpaused
from holdfast.trial.trial import Status, Trial


def back_to_waiting(trial: Trial) -> TrialEvent | None:
    """What befell a trial that was under way: the experiment stopped under it."""
    if trial.status is Status.PAUSED:
        return Unpaused(trial_id=trial.trial_id)
    if trial.status.has_worker:
        return Interrupted(trial_id=trial.trial_id)
    return None


def is_taken_up(trial: Trial, event: Resumed, *, is_over: bool) -> bool:
    """Whether the trial, which nobody runs, is to run; `is_over`: there is no time left."""
    if trial.attempt == 0 and not trial.status.is_final:
        return True
    return _wish(trial, event) != "skip" and not (is_over and trial.status.is_final)


def reopening(trial: Trial, event: Resumed) -> Reopened | None:
    """What changes for a trial that is taken up."""
    if trial.attempt == 0 and not trial.status.is_final:
        return None
    is_anew = _wish(trial, event) == "restart"
    if not is_anew and not trial.status.is_final:
        return None
    return Reopened(trial_id=trial.trial_id, from_scratch=is_anew)


def _wish(trial: Trial, event: Resumed) -> str:
    match trial.status:
        case Status.TERMINATED:
            return event.finished
        case Status.ERROR:
            return event.errored
        case _:
            return event.unfinished


def uncommitted(trial: Trial) -> Iterator[Commit]:
    """What a crash cut off is asked for again."""
    for checkpoint in trial.checkpoints:
        if not checkpoint.committed:
            yield Commit(trial_id=trial.trial_id, checkpoint=checkpoint)


def by_progress(trials: Iterable[Trial]) -> list[Trial]:
    """Those that had begun first, so that a restore goes on where the run was cut."""
    return sorted(trials, key=lambda trial: (trial.attempt == 0, trial.spec.index))
