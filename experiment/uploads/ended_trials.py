"""Finds which trials have ended for good, with all their files written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from holdfast.scheduler.machine import Machine
from holdfast.syncer.files.boot import boot_id
from holdfast.syncer.journal.journal import Position
from holdfast.trial.trial import Trial

# So many in a message.
_AT_ONCE = 10_000


class EndedTrials:
    """What the uploader has been told of ended trials, each as the value that it had then.

    An event that concerns a trial makes another value of it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._boot = boot_id()
        self._told: dict[str, Trial] = {}
        # Those whose files may not be written yet, with the journal's end when `news` had them.
        self._waiting: dict[str, Position] = {}

    def forget(self) -> None:
        """A new uploader knows of none."""
        self._told.clear()
        self._waiting.clear()

    def news(self, end: Position) -> Iterator[dict[str, str]]:
        """The folders of trials that have ended, with a word for each that differs if the trial
        has run again; "" for those that run again now. `end` is the journal's end now."""
        return _in_parts(self._news(end))

    def _news(self, end: Position) -> Iterator[tuple[str, str]]:
        for trial_id, trial in self._machine.trials.items():
            told = self._told.get(trial_id)
            if told is trial:
                continue
            if self._has_ended(trial):
                self._told[trial_id] = trial
                self._waiting[trial_id] = end
                yield trial.spec.dirname, self._word(trial)
            elif told is not None:
                del self._told[trial_id]
                self._waiting.pop(trial_id, None)
                yield trial.spec.dirname, ""

    def _has_ended(self, trial: Trial) -> bool:
        """Whether nothing more comes into its folder, neither of its worker nor of its uploads."""
        is_committed = all(checkpoint.committed for checkpoint in trial.checkpoints)
        return is_committed and self._machine.has_left(trial)

    def written(self, written: Position) -> Iterator[dict[str, str]]:
        """Those of the told folders whose files are written by now, with their words: all files of
        trials are as the journal up to this position."""
        done = [trial_id for trial_id, end in self._waiting.items() if end <= written]
        for trial_id in done:
            del self._waiting[trial_id]
        told = (self._told[trial_id] for trial_id in done)
        return _in_parts((trial.spec.dirname, self._word(trial)) for trial in told)

    def _word(self, trial: Trial) -> str:
        """After another boot the projector writes all files anew."""
        now = (trial.status.name, trial.attempt, trial.iteration, trial.reported_at)
        return " ".join(map(str, (*now, trial.place.pid, self._boot)))


def _in_parts(words: Iterator[tuple[str, str]]) -> Iterator[dict[str, str]]:
    while part := dict(islice(words, _AT_ONCE)):
        yield part
