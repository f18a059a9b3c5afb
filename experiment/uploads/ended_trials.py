"""Finds which trials have ended for good, with all their files written."""

from __future__ import annotations

from collections.abc import Iterator

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
        # Each with the end of the journal when it was first seen to have ended.
        self._seen: dict[str, tuple[Trial, Position]] = {}
        self._told: dict[str, Trial] = {}

    def forget(self) -> None:
        """A new uploader knows of none."""
        self._told.clear()

    def news(self, end: Position, written: Position) -> Iterator[dict[str, str]]:
        """The folders of trials that have ended, with a word for each that differs if the trial
        has run again; "" for those that run again now.

        The journal's `end` is now, and `written` is up to where the trials' files have it.
        """
        found: dict[str, str] = {}
        for trial_id, trial in self._machine.trials.items():
            told = self._told.get(trial_id)
            if told is trial:
                continue
            if not trial.status.is_final or trial_id in self._machine.placement.holds:
                if told is not None:
                    del self._told[trial_id]
                    found[trial.spec.dirname] = ""
            elif self._is_written(trial, end, written):
                self._told[trial_id] = trial
                found[trial.spec.dirname] = self._word(trial)
            if len(found) == _AT_ONCE:
                yield found
                found = {}
        if found:
            yield found

    def _is_written(self, trial: Trial, end: Position, written: Position) -> bool:
        seen, since = self._seen.get(trial.trial_id, (None, end))
        if seen is not trial:
            since = end
            self._seen[trial.trial_id] = (trial, end)
        if since > written:
            return False
        del self._seen[trial.trial_id]
        return True

    def _word(self, trial: Trial) -> str:
        """After another boot the projector writes all files anew."""
        now = (trial.status.name, trial.attempt, trial.iteration, trial.reported_at)
        return " ".join(map(str, (*now, trial.place.pid, self._boot)))
