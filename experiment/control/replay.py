"""The history of an experiment, told again from its journal to whoever keeps a state of his own.

A search algorithm or a stopper that a restore has loaded knows nothing of what went before. One
pass over the journal tells it, change by change, in the order and in the words of the first time;
no more than one record is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.experiment.records.fold import Fold, subject_of
from holdfast.scheduler.events import Event, Recalled, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position
from holdfast.trial.trial import Status, Trial

# What a trial was before and is after an event: its own, or (None) one of something else.
Change = tuple[Event | None, Trial | None, Trial | None]


def history(journal: Path, start: Position, stop: Position) -> Iterator[Change]:
    """Each change of a trial between two positions of the journal; `start` is where the experiment
    begins."""
    fold = Fold(Machine(), start)
    for event, _, before in fold.run(journal, stop):
        subject = subject_of(event) or ""
        yield event, before, fold.machine.trials.get(subject)
        if isinstance(event, Recalled):
            yield from _known(fold.machine)
        yield from others_moved(fold.machine, subject)


def _known(machine: Machine) -> Iterator[Change]:
    """What is left of a lost history: which trials there are, and which of them have ended."""
    for trial in machine.trials.values():
        begun = Trial(spec=trial.spec)
        yield Suggested(spec=trial.spec), None, begun
        if trial.status.is_final:
            yield None, begun, trial


def others_moved(machine: Machine, by: str) -> list[Change]:
    """Other trials that the newest event, of trial `by`, has ended, paused or let go on: they have
    no event of their own."""
    return [
        (None, before, machine.trials[trial_id])
        for trial_id, before in machine.moved.items()
        if trial_id != by and _is_told(before, machine.trials[trial_id])
    ]


def _is_told(before: Trial, after: Trial) -> bool:
    has_ended = after.status.is_final and not before.status.is_final
    was_paused = before.status is Status.PAUSED
    return has_ended or was_paused != (after.status is Status.PAUSED)
