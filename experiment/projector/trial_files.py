"""The files of each trial, written from the journal.

These are params.json, result.json, progress.csv, TensorBoard's event file and error.txt. The
journal can restore them all. So nothing here calls fsync, and a file that cannot be written, or
that another program has changed, is not repaired in place: the projector gives up its trial and
later rewrites the trial's files from the beginning.

The log of a policy (`PolicyLog`) is such a file, too: which trial was cloned from which, as JSON
lines. `pbt_global.txt` has all clonings; `pbt_policy_<trial_id>.txt` those in a trial's history:
its own newest, and above it those of the trials it was cloned from. A line is [tag, tag of the
source, iteration, iteration of the source's checkpoint, config of the source, new config].
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.experiment.folder.layout import (
    ERROR,
    EVENTS_SUFFIX,
    OF_SCRIPT,
    PARAMS,
    PROGRESS,
    RESULTS,
    STDERR,
    STDOUT,
    Layout,
    is_policy_log,
    is_trial_record,
)
from holdfast.experiment.projector import tensorboard
from holdfast.experiment.projector.append_files import (
    AppendFile,
    EventCurves,
    FileChanged,
    ProgressTable,
    Row,
)
from holdfast.experiment.records.recovery import failure_of
from holdfast.experiment.records.rows import (
    CONFIG,
    encode,
    error_entry,
    errors_until,
    params_text,
    result_row,
    rows_until,
    shown_config,
)
from holdfast.experiment.records.snapshots import FileNotes, FilesNote, Mark, Written
from holdfast.scheduler.events import CheckpointLost, Event, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import CloneTrial, Decision
from holdfast.syncer.files.durable import TEMPORARY, remove_file, replace_file
from holdfast.syncer.files.tree import NotRegular, read_regular
from holdfast.trees import try_to_delete
from holdfast.trial.events import Committed, ConstraintViolated, Measured, Reported, Saved, Started
from holdfast.trial.trial import Origin, Status, Trial, TrialSpec
from holdfast.trial.values import Config


class PolicyLog:
    """Collects cloning decisions from events; `flush` writes them. Must see the experiment from
    its start."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._global = AppendFile(str(layout.policy_log))
        self._lines: dict[str, tuple[bytes, ...]] = {}
        self._waiting: list[bytes] = []
        self._changed: set[str] = set()
        self._adopted: frozenset[bytes] = frozenset()

    def adopt(self, machine: Machine) -> None:
        """Keep the existing lines: the records of some of them are lost."""
        self._waiting = _lines_of(self._layout.policy_log)
        self._adopted = frozenset(self._waiting)
        for trial_id in machine.trials:
            if lines := _lines_of(self._layout.policy_log_of(trial_id)):
                self._lines[trial_id] = tuple(lines)

    def take_in(self, event: Event, machine: Machine) -> None:
        """Process an event that `machine` has just handled."""
        for decision in _takeovers(machine.answers) if any(machine.answers) else ():
            trial = machine.trials[decision.trial_id]
            before = machine.moved.get(decision.trial_id, trial)
            if trial.origin is None or trial.origin is before.origin:
                continue  # the decision was not performed
            iteration = before.iteration
            if isinstance(event, Reported) and event.trial_id == trial.trial_id:
                iteration = event.iteration
            self._add(machine, decision, trial.origin, iteration)

    def _add(self, machine: Machine, decision: CloneTrial, origin: Origin, iteration: int) -> None:
        trial, source = machine.trials[decision.trial_id], machine.trials[decision.source]
        former = machine.moved.get(decision.source, source)
        row = [
            trial.spec.tag,
            source.spec.tag,
            iteration,
            origin.checkpoint.iteration,
            shown_config(former.config),
            shown_config(decision.config),
        ]
        line = f"{encode(row)}\n".encode()
        if line in self._adopted:
            return
        self._waiting.append(line)
        self._lines[decision.trial_id] = (*self._lines.get(decision.source, ()), line)
        self._changed.add(decision.trial_id)

    @property
    def unwritten(self) -> frozenset[str]:
        """The trials with a cloning that is not written yet."""
        return frozenset(self._changed)

    def flush(self) -> None:
        """Write the log. Raises OSError; then the log must be rewritten."""
        if not self._waiting:
            return
        for trial_id in sorted(self._changed):
            path = self._layout.policy_log_of(trial_id)
            replace_file(str(path), b"".join(self._lines[trial_id]))
        data = b"".join(self._waiting)
        if self._global.size:
            self._global.append(data)
        else:
            replace_file(self._global.path, data)
            self._global.size = len(data)
        self._changed.clear()
        self._waiting.clear()

    def settle(self) -> None:
        """Write the log, and remove one that a longer journal left. Raises OSError."""
        self.flush()
        if self._global.size or not self._layout.policy_log.exists():
            return
        for name in [*filter(is_policy_log, os.listdir(self._layout.root))]:
            remove_file(f"{self._layout.root}/{name}")


def _lines_of(path: Path) -> list[bytes]:
    try:
        return read_regular(path).splitlines(keepends=True)
    except OSError:
        return []


def _takeovers(answers: Sequence[Sequence[Decision]]) -> list[CloneTrial]:
    decided = (decision for answer in answers for decision in answer)
    return [one for one in decided if isinstance(one, CloneTrial) and one.is_logged]


# Events that do not change a trial's files. What an attempt has used is in its next row's curves.
INVISIBLE = (Committed, CheckpointLost, ConstraintViolated, Measured)
# The folder in which a trial's files are rewritten: a name that `durable.is_leftover` knows.
_ASIDE = f"{TEMPORARY}{0:016x}"


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
        elif isinstance(event, Saved) and before.status not in (Status.PENDING, Status.STARTING):
            # Else a restore has found it, perhaps of an iteration before the last row: the start
            # of the attempt rolls back to it.
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
        """Notes of the files that are as at this state of the machine, for `resume`; or None."""
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


class TrialRecord:
    """The files of one trial, as far as they are written.

    They may be in a folder aside while they are rewritten, and then replace those in the trial's.
    """

    def __init__(
        self,
        folder: str,
        spec: TrialSpec,
        kept: list[str],
        *,
        with_tensorboard: bool,
        with_config: bool,
    ) -> None:
        """`kept` gets the places of files of the script's own that had the name of one of
        these."""
        self.folder = self._write_folder = folder
        self._with_config = with_config
        self._id = spec.trial_id.encode()
        # What this trial's params.json has been so far.
        self._texts: set[bytes] = set()
        self._set_config(spec.config)
        self._results = AppendFile(f"{folder}/{RESULTS}")
        self._progress = ProgressTable(f"{folder}/{PROGRESS}")
        self._errors = AppendFile(f"{folder}/{ERROR}")
        self._curves = EventCurves(folder) if with_tensorboard else None
        self._marks = {0: Mark()}
        self._waiting: list[Row] = []
        self.has_ended = False
        self._kept = kept
        # What the attempt had used before its next row; empty if that is not known anew.
        self.usage: Mapping[str, float] = {}

    def create(self, *, anew: bool) -> None:
        if os.path.islink(self.folder):
            raise NotRegular(errno.EINVAL, "it is a link, which may lead elsewhere", self.folder)
        os.makedirs(self.folder, exist_ok=True)
        if anew and any(map(_is_projection, os.listdir(self.folder))):
            aside = f"{self.folder}/{_ASIDE}"
            try_to_delete(aside)
            os.mkdir(aside)
            self._move(aside)
        AppendFile(f"{self._write_folder}/{PARAMS}").append(self._params())

    def adopt(self, trial: Trial) -> None:
        """Copy the existing rows. The rows of result.json make up progress.csv as well."""
        self.has_ended = trial.status.is_final
        self._write_params_if_changed(trial)
        if self._write_folder == self.folder:
            return
        lines, rows = rows_until(f"{self.folder}/{RESULTS}", trial.iteration)
        self._results.append(b"".join(lines))
        if CONFIG not in (trial.row or {}):  # then it is not a metric of the user's
            rows = [{key: row[key] for key in row if key != CONFIG} for row in rows]
        self._progress.add(rows)
        self._errors.append(errors_until(f"{self.folder}/{ERROR}", trial))
        if self._curves:
            self._curves.adopt(self.folder, trial.iteration)

    def note(self, trial: Trial) -> FilesNote | None:
        """The note with which `resume` continues the files at this state of the trial; None if
        they are not complete, or will not stay where they are."""
        is_in_place = self._write_folder == self.folder and not self.has_ended
        is_complete = self._progress.is_complete and not self._waiting
        if not (is_in_place and is_complete and trial.config == self._config):
            return None
        curves = self._curves
        return FilesNote(
            trial_id=trial.trial_id,
            results=self._results.written,
            progress=self._progress.written,
            rows=self._progress.rows,
            errors=self._errors.written,
            curves=curves.written if curves else Written(),
            curves_at=curves.named_at if curves else 0,
            emptied_at=curves.emptied_at if curves else 0,
            marks=tuple(self._marks.values()),
            usage=self.usage or None,
        )

    def resume(self, trial: Trial, note: FilesNote) -> None:
        """Copy what the existing files had at this state of the trial. Raises OSError; FileChanged
        if that is not what they begin with."""
        if not note.is_possible:
            raise FileChanged(self.folder)
        self._write_params_if_changed(trial)
        self._results.copy(self.folder, note.results)
        self._progress.copy_rows(self.folder, note.progress, note.rows)
        self._errors.copy(self.folder, note.errors)
        if self._curves:
            self._curves.copy_named(self.folder, note.curves, note.curves_at, note.emptied_at)
        self._marks |= {mark.iteration: mark for mark in note.marks}
        self.usage = note.usage or {}

    def _write_params_if_changed(self, trial: Trial) -> None:
        if trial.config != self._config:
            self._check_params()
            self._set_config(trial.config)
            replace_file(f"{self._write_folder}/{PARAMS}", self._params())

    def _check_params(self) -> None:
        """Raises FileChanged if params.json is not as this has written it."""
        path = f"{self._write_folder}/{PARAMS}"
        if read_regular(path) != self._params():
            raise FileChanged(path)

    def _set_config(self, config: Config) -> None:
        self._config = config
        self._shown_config = shown_config(config)
        self._texts.add(self._params())
        self._line_end = "}\n"
        if self._with_config:
            self._line_end = f', "{CONFIG}": {encode(self._shown_config)}}}\n'

    def _params(self) -> bytes:
        return params_text(self._shown_config).encode()

    def settle(self) -> None:
        self._progress.finish()
        if self._write_folder == self.folder:
            return
        made = os.listdir(self._write_folder)
        for name in filter(_is_projection, os.listdir(self.folder)):
            if not self._keep_if_scripts(name) and name not in made:
                remove_file(f"{self.folder}/{name}")
        for name in made:
            os.replace(f"{self._write_folder}/{name}", f"{self.folder}/{name}")
        os.rmdir(self._write_folder)
        self._move(self.folder)

    def _keep_if_scripts(self, name: str) -> bool:
        """Give a file that only the trial's script can have written another name, as it writes
        none of these: those of an earlier projector are like this one's, or name the trial."""
        path = f"{self.folder}/{name}"
        if name.endswith(EVENTS_SUFFIX):
            return False
        data = _read(path)
        lines = data.splitlines()
        is_begun = bool(lines) and b"trial_id" in lines[0]
        if (
            not data.strip(b"\0")  # a power cut leaves this of a file, too
            or data in self._texts
            or _read(f"{self._write_folder}/{name}").startswith(data)
            or (name == ERROR and data.startswith(b"Attempt "))
            or (is_begun and self._id in lines[-1])
        ):
            return False
        kept, number = f"{path}{OF_SCRIPT}", 1
        while is_begun and os.path.lexists(kept):  # it has rows of this one's before its own
            number += 1
            kept = f"{path}{OF_SCRIPT}-{number}"
        os.replace(path, kept)
        self._kept.append(kept)
        return True

    def _move(self, folder: str) -> None:
        self._write_folder = folder
        for file in (self._results, self._progress, self._errors, self._curves):
            if file is not None:
                file.move(folder)

    def add(self, trial: Trial, event: Reported) -> None:
        row = result_row(trial, with_config=False)
        self._waiting.append(Row(row, event.iteration, event.timestamp, self.usage))
        self.usage = {}

    def mark(self, trial: Trial, iteration: int) -> None:
        """Remember the sizes, to which the trial may be rolled back."""
        self.flush()
        curves = self._curves.size if self._curves else 0
        self._marks[iteration] = Mark(
            iteration=iteration,
            results=self._results.size,
            rows=self._progress.rows,
            curves=curves,
        )
        if len(self._marks) > 2 * len(trial.checkpoints) + 8:
            kept = {0, *(checkpoint.iteration for checkpoint in trial.checkpoints)}
            self._marks = {at: mark for at, mark in self._marks.items() if at in kept}

    def roll_back(self, trial: Trial, now: float) -> None:
        """An attempt has started: remove the rows after the iteration that it resumes from."""
        self.has_ended = False
        self.usage = {}
        self.flush()
        self._marks = {at: m for at, m in self._marks.items() if at <= trial.resumed_from}
        mark = self._marks[max(self._marks)]
        if trial.resumed_from not in self._marks:
            mark = self._marks[trial.resumed_from] = self._extended(mark, trial.resumed_from)
        self._results.cut(mark.results)
        self._progress.keep(mark.rows)
        if self._curves:
            self._curves.restart(mark.curves, now)
        self._write_params_if_changed(trial)

    def _extended(self, mark: Mark, iteration: int) -> Mark:
        """The mark of a clone, which resumes at another trial's iteration and keeps its own rows
        up to there."""
        if mark.results == self._results.size:
            return replace(mark, iteration=iteration)
        data = self._results.head(self._results.size)[mark.results :]
        try:
            lines = [json.loads(line) for line in data.splitlines()]
            kept = [row["training_iteration"] <= iteration for row in lines]
            curves = mark.curves
            if self._curves and self._curves.size:
                curves = tensorboard.end_of_step(self._curves.head(self._curves.size), iteration)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            # Another program has written JSON that is not a row.
            raise FileChanged(self._results.path) from error
        size = sum(map(len, data.splitlines(keepends=True)[: sum(kept)]))
        return Mark(
            iteration=iteration,
            results=mark.results + size,
            rows=mark.rows + sum(kept),
            curves=curves,
        )

    def fail(self, text: str) -> None:
        self._errors.append(text.encode())

    def flush(self, ending: bytes = b"") -> None:
        rows, self._waiting = self._waiting, []
        if rows:
            self._results.append("".join(map(self._line, rows)).encode())
            self._progress.add([row.values for row in rows])
        if self._curves and (rows or ending):
            self._curves.add(self._shown_config, rows, ending)

    def end(self, status: Status, now: float) -> None:
        charted = self._curves and (self._curves.size or self._waiting)
        if charted and not self.has_ended:
            succeeded = status is Status.TERMINATED
            self.flush(tensorboard.session_end(succeeded=succeeded, wall_time=now))
        else:
            self.flush()
        self._progress.finish()
        self.has_ended = True
        if self._write_folder == self.folder:
            self._check_params()
            for file in (self._results, self._progress, self._errors):
                file.check()

    def _line(self, row: Row) -> str:
        if CONFIG in row.values:  # a metric of the user's
            return encode(row.values) + "\n"
        return encode(row.values)[:-1] + self._line_end


def _read(path: str) -> bytes:
    """The bytes of a file; none if it is missing or not regular, such as a link."""
    try:
        return read_regular(path)
    except (FileNotFoundError, NotRegular):
        return b""


def _is_projection(name: str) -> bool:
    return is_trial_record(name) and name not in (STDOUT, STDERR)
