"""Translates events of the journal into changes of a trial's files."""

from __future__ import annotations

from holdfast.experiment.projector.trial_files import TrialFiles
from holdfast.experiment.records.fold import failure_of
from holdfast.scheduler.events import CheckpointLost, Event, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.trial.events import Committed, Reported, Saved, Started
from holdfast.trial.trial import Trial

# Events that do not change a trial's files.
INVISIBLE = (Committed, CheckpointLost)


def apply(
    files: TrialFiles, event: Event, now: float, before: Trial | None, after: Trial, *, anew: bool
) -> None:
    """Update a trial's files after an event. `anew`: they are rewritten from the beginning."""
    if isinstance(event, Suggested):
        files.create(after.spec, anew=anew)
    if before is None or after is before:  # of an older attempt: the machine ignored it
        return
    if isinstance(event, Reported):
        files.add_row(after, event)
    elif isinstance(event, Saved):
        files.mark(after, event.checkpoint.iteration)
    elif isinstance(event, Started):
        files.begin_attempt(after, now)
    elif after.setbacks > before.setbacks or after.shrunk_until > before.shrunk_until:
        files.fail(before, failure_of(event, before, after), now)
    if after.status.is_final and not before.status.is_final:
        files.end(after, now, forget=not anew)


def close_ended(files: TrialFiles, machine: Machine, *, forget: bool = True) -> None:
    """Close files of trials that ended without an event, as waiting ones do when stopped."""
    for trial_id in files.alive:
        trial = machine.trials[trial_id]
        if trial.status.is_final:
            files.end(trial, machine.now, forget=forget)
