"""The files of each trial, written from the journal.

These are params.json, result.json, progress.csv, TensorBoard's event file and error.txt. The
journal can restore them all. So nothing here calls fsync, and a file that cannot be written, or
that another program has changed, is not repaired in place: the projector gives up its trial and
later rewrites the trial's files from the beginning.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Mapping

from holdfast.experiment.folder.layout import (
    Layout,
)
from holdfast.experiment.projector.trial_record import TrialRecord
from holdfast.experiment.records.file_notes import FileNotes, FilesNote
from holdfast.experiment.records.fold import failure_of
from holdfast.experiment.records.rows import (
    error_entry,
)
from holdfast.scheduler.events import CheckpointLost, Event, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.trial.events import Committed, ConstraintViolated, Measured, Reported, Saved, Started
from holdfast.trial.trial import Trial, TrialSpec

# Events that do not change a trial's files. What an attempt has used is in its next row's curves.
INVISIBLE = (Committed, CheckpointLost, ConstraintViolated, Measured)


class TrialFiles:
    """The files of all trials that are not final.

    No method raises OSError: `behind` maps trials whose files differ from the journal to the
    reason. Calls about such a trial are ignored until it is created again.
    """

    def __init__(self, layout: Layout, *, with_tensorboard: bool, with_config: bool) -> None:
        self._layout = layout
        self._with_tensorboard = with_tensorboard
        self._with_config = with_config
        self._records: dict[str, TrialRecord] = {}
        self._unwritten: dict[str, TrialRecord] = {}
        self.behind: dict[str, OSError] = {}
        # Where files of scripts' own are that had the names of these.
        self.kept: list[str] = []

    @property
    def alive(self) -> tuple[str, ...]:
        """The trials that were created and have not ended."""
        return tuple(self._records)

    def apply(
        self, event: Event, now: float, before: Trial | None, after: Trial, *, anew: bool
    ) -> None:
        """Update a trial's files after an event; `flush` writes rows. `anew`: they are rewritten
        from the beginning."""
        if isinstance(event, Suggested):
            self.create(after.spec, anew=anew)
        if before is None or after is before:  # of an older attempt: the machine ignored it
            return
        if isinstance(event, Reported):
            self._add_row(after, event)
        elif isinstance(event, Saved):
            self._mark(after, event.checkpoint.iteration)
        elif isinstance(event, Measured):
            if (record := self._records.get(after.trial_id)) is not None:
                record.usage = event.usage.columns()
        elif isinstance(event, Started):
            self._with(after.trial_id, lambda record: record.roll_back(after, now))
        elif after.setbacks > before.setbacks or after.shrunk_until > before.shrunk_until:
            text = error_entry(before.attempt, failure_of(event, before, after), now)
            self._with(after.trial_id, lambda record: record.fail(text))
        if after.status.is_final and not before.status.is_final:
            self._end(after, now, forget=not anew)

    def close_ended(
        self, machine: Machine, among: Container[str] | None = None, *, forget: bool = True
    ) -> None:
        """Close files of trials that ended without an event, as waiting ones do when stopped.

        `among`: only of these trials."""
        for trial_id in self.alive:
            if among is not None and trial_id not in among:
                continue
            trial = machine.trials[trial_id]
            if trial.status.is_final:
                self._end(trial, machine.now, forget=forget)

    def notes(self, machine: Machine) -> FileNotes | None:
        """What continues the files that are as at this state of the machine; None for none."""
        found = (
            record.note(machine.trials[trial_id]) for trial_id, record in self._records.items()
        )
        trials = tuple(note for note in found if note is not None)
        if not trials:
            return None
        return FileNotes(
            with_curves=self._with_tensorboard, with_config=self._with_config, trials=trials
        )

    def resume(
        self, trials: Mapping[str, Trial], notes: FileNotes, *, except_for: Container[str]
    ) -> None:
        """Continue the files of these trials from the state of which there are `notes`.

        The files are copied, and the copies replace them in `settle`, as with `anew`. A trial
        whose files do not begin as its note says is given up.
        """
        if (notes.with_curves, notes.with_config) != (self._with_tensorboard, self._with_config):
            return
        for note in notes.trials:
            trial = trials.get(note.trial_id)
            if not (trial is None or trial.status.is_final or trial.trial_id in except_for):
                self._resume(trial, note)

    def _resume(self, trial: Trial, note: FilesNote) -> None:
        self.create(trial.spec, anew=True)
        self._with(trial.trial_id, lambda record: record.resume(trial, note))

    def create(self, spec: TrialSpec, *, anew: bool = False) -> None:
        """Create the directory and params.json.

        With `anew`, the files are created next to those of an earlier projector, and replace them
        only in `settle`: until they are complete, the old ones are better to read.
        """
        self.behind.pop(spec.trial_id, None)
        self._records[spec.trial_id] = TrialRecord(
            str(self._layout.trial(spec)),
            spec,
            self.kept,
            with_tensorboard=self._with_tensorboard,
            with_config=self._with_config,
        )
        self._with(spec.trial_id, lambda record: record.create(anew=anew))

    def adopt(self, trial: Trial) -> None:
        """Keep the rows of the existing files up to this state of the trial: their records are
        lost."""
        self._with(trial.trial_id, lambda record: record.adopt(trial))

    def _add_row(self, trial: Trial, event: Reported) -> None:
        record = self._records.get(trial.trial_id)
        if record is None:
            self._miss(trial.trial_id)
            return
        record.add(trial, event)
        self._unwritten[trial.trial_id] = record
        if event.checkpoint is not None:
            self._mark(trial, event.checkpoint.iteration)

    def _mark(self, trial: Trial, iteration: int) -> None:
        """The trial has a checkpoint of this iteration and may be rolled back to it."""
        self._with(trial.trial_id, lambda record: record.mark(trial, iteration))

    def _end(self, trial: Trial, now: float, *, forget: bool) -> None:
        """The trial is final: write the rest.

        With `forget=False` the trial can still be resumed, by later records of the journal.
        """
        self._with(trial.trial_id, lambda record: record.end(trial.status, now))
        if forget:
            self.forget(trial.trial_id)

    def forget(self, trial_id: str) -> None:
        self._records.pop(trial_id, None)
        self._unwritten.pop(trial_id, None)

    def flush(self) -> None:
        """Write all rows so far to the operating system."""
        for trial_id in list(self._unwritten):
            self._with(trial_id, TrialRecord.flush)
        self._unwritten.clear()

    def settle(self) -> None:
        """Put the rewritten files in place."""
        for trial_id in self.alive:
            self._with(trial_id, TrialRecord.settle)

    def settle_ended(self) -> list[str]:
        """Put the rewritten files of final trials in place; return these trials."""
        ended = [trial_id for trial_id, record in self._records.items() if record.has_ended]
        for trial_id in ended:
            self._with(trial_id, TrialRecord.settle)
        return [trial_id for trial_id in ended if trial_id not in self.behind]

    def _with(self, trial_id: str, action: Callable[[TrialRecord], object]) -> None:
        record = self._records.get(trial_id)
        if record is None:
            self._miss(trial_id)
            return
        try:
            action(record)
        except OSError as error:
            # The error of a full disk has no filename.
            error.filename = error.filename or record.folder
            self.give_up(trial_id, error)

    def give_up(self, trial_id: str, error: OSError) -> None:
        """Ignore the trial from now on: its files differ from the journal."""
        self.behind[trial_id] = error
        self.forget(trial_id)

    def _miss(self, trial_id: str) -> None:
        """A trial whose files had ended has resumed: only the journal knows their content."""
        if trial_id not in self.behind:
            self.behind[trial_id] = OSError(errno.ESTALE, "resumed after its end", trial_id)
