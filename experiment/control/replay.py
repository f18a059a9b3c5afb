"""Replays the history of an experiment from its journal to code that keeps a state of its own.

A search algorithm or a stopper that a restore has created knows nothing of earlier results. One
pass over the journal replays them, change by change, in the original order. It holds only one
record in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.experiment.records.fold import Fold, subject_of
from holdfast.scheduler.events import Event, Recalled, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position
from holdfast.trial.trial import Status, Trial

# An event, and its trial before and after it. The event is None if an event of another trial
# changed this one.
Change = tuple[Event | None, Trial | None, Trial | None]


def history(journal: Path, start: Position, stop: Position) -> Iterator[Change]:
    """Each change of a trial between two positions of the journal.

    `start` is where the experiment begins.
    """
    fold = Fold(Machine(), start)
    for event, _, before in fold.run(journal, stop):
        subject = subject_of(event) or ""
        yield event, before, fold.machine.trials.get(subject)
        if isinstance(event, Recalled):
            yield from _known(fold.machine)
        yield from others_moved(fold.machine, subject)


def _known(machine: Machine) -> Iterator[Change]:
    """The trials of a history that is lost, and which of them have ended."""
    for trial in machine.trials.values():
        begun = Trial(spec=trial.spec)
        yield Suggested(spec=trial.spec), None, begun
        if trial.status.is_final:
            yield None, begun, trial


def others_moved(machine: Machine, by: str) -> list[Change]:
    """The changes of other trials by the newest event, which is about trial `by`.

    It may have ended, paused or resumed them; they have no event of their own.
    """
    return [
        (None, before, machine.trials[trial_id])
        for trial_id, before in machine.moved.items()
        if trial_id != by and _has_ended_or_paused(before, machine.trials[trial_id])
    ]


def _has_ended_or_paused(before: Trial, after: Trial) -> bool:
    has_ended = after.status.is_final and not before.status.is_final
    was_paused = before.status is Status.PAUSED
    return has_ended or was_paused != (after.status is Status.PAUSED)
