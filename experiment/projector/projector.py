"""The projector: the process that reads the journal and writes all files derived from it.

The controller appends to the journal and says how far it goes. The projector applies the same
events to its own machine, writes each trial's files (`holdfast.experiment.projector.trial_files`)
and regularly a snapshot. It may lag, die or fail to write without losing anything: when it starts,
it rewrites the files of every trial whose state on disk is unknown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import OF_SCRIPT, Layout
from holdfast.experiment.projector.folders import CleanFolders
from holdfast.experiment.projector.trial_files import INVISIBLE, PolicyLog, TrialFiles
from holdfast.experiment.records.recovery import Fold, subject_of
from holdfast.experiment.records.snapshots import Snapshot, load_newest_snapshot, write_snapshot
from holdfast.scheduler.events import Event, Recalled
from holdfast.scheduler.machine import Machine
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.journal.journal import Position, segments
from holdfast.syncer.journal.stretches import segment_size
from holdfast.trial.trial import Trial

# The pause after the work, in multiples of the time that it took.
_PAUSE_FACTOR = 30


class Pace:
    """A context manager around work that is due every `period_s`, the first time now if `at_once`.

    Slow work is due later, so that it takes at most a thirtieth of the time.
    """

    def __init__(
        self, period_s: float, clock: Callable[[], float], *, at_once: bool = False
    ) -> None:
        self._period_s = period_s
        self._clock = clock
        self._entered = 0.0
        self.due_at = clock() + (0.0 if at_once else period_s)

    @property
    def is_due(self) -> bool:
        return self._clock() >= self.due_at

    def __enter__(self) -> None:
        self._entered = self._clock()

    def __exit__(self, *_: object) -> None:
        now = self._clock()
        self.due_at = now + max(self._period_s, _PAUSE_FACTOR * (now - self._entered))


# Rows are written to the operating system at least this often, in bytes of the journal (0.1 s of
# work), so that catching up with a long journal needs little memory.
_FLUSH_BYTES = 1 << 20
# A snapshot saves a restore the records since the one before. While they are fewer bytes than the
# snapshot itself, it can wait: this many periods.
_PERIODS = 60


class _EveryTrial(Container[str]):
    def __contains__(self, trial_id: object) -> bool:
        return True


_EVERY_TRIAL = _EveryTrial()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorSettings:
    """The files that the projector writes, and how often.

    `remembers_clean`: a snapshot says in which folders a later run has to look for leftovers.
    Only processes that the projector knows of may write into the folders, and the uploader, which
    removes the leftovers of its indexes; no node. `tells_written`: the controller hears how
    far the files are, once a second.
    """

    tensorboard: bool = True
    config_in_rows: bool = True
    snapshot_period_s: float = 10.0
    remembers_clean: bool = False
    tells_written: bool = False


class Projector:
    """Projects one experiment's journal. `clock` returns monotonic seconds."""

    def __init__(
        self,
        layout: Layout,
        settings: ProjectorSettings,
        clock: Callable[[], float] = time.monotonic,
        *,
        boot: str | None = None,
        check_ownership: Callable[[], None] = lambda: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Start at the beginning of the journal; nothing is read yet.

        `boot` names this boot of the operating system, for tests. `check_ownership` raises
        LockLost if another run owns the experiment: then nothing is removed. `progress` is called
        with the bytes of the journal that are read and their total.
        """
        self._progress = progress
        self._folders = CleanFolders(layout, check_ownership, remembers=settings.remembers_clean)
        self._layout = layout
        self._settings = settings
        self._clock = clock
        self._boot = boot_id() if boot is None else boot
        self._files = TrialFiles(
            layout,
            with_tensorboard=settings.tensorboard,
            with_config=settings.config_in_rows,
        )
        self._log = PolicyLog(layout)
        self._fold = Fold(Machine(), Position())
        self._beginning: Position | None = None
        self._saved: Position | None = None
        self._saved_bytes = 0
        self._snapshots = Pace(settings.snapshot_period_s, clock)
        self._repairs = Pace(settings.snapshot_period_s, clock, at_once=True)

    @property
    def position(self) -> Position:
        """Everything before this position has been processed."""
        return self._fold.position

    @property
    def trouble(self) -> str | None:
        """The reason why files cannot be written, for the user; None if all are."""
        behind = self._files.behind
        if not behind:
            return None
        error = next(iter(behind.values()))
        others = len(behind) - 1
        rest = f", and files of {others} other trial{'s' * (others > 1)}" if others else ""
        return (
            f"{error.filename}: {error.strerror}{rest}. No report is lost: the files are "
            "rewritten from the journal"
        )

    @property
    def kept(self) -> str:
        """Where a script's own file is that had the name of one of holdfast's; "" for none."""
        if not self._files.kept:
            return ""
        kept = self._files.kept[0]
        name = os.path.basename(kept).partition(OF_SCRIPT)[0]
        return (
            f"a trial's script writes a file {name} of its own in its folder, and so does "
            f"holdfast. The script's is kept as {kept}, and so are others of such names"
        )

    @property
    def wait_s(self) -> float | None:
        """Seconds until something is due without a message; None if nothing is."""
        due = [self._repairs.due_at] if self._files.behind else []
        if self._has_news:
            due.append(self._snapshot_due_at)
        return max(0.0, min(due) - self._clock()) if due else None

    def catch_up(self, stop: Position | None = None) -> None:
        """Process the journal up to `stop` (None: to its end) and write the files.

        Raises OSError if the journal cannot be read, and UnreadableRecord or InvalidTransition if
        it is not valid. Files that cannot be written raise nothing, see `trouble`.
        """
        if self._beginning is None:
            self._begin(stop)
        else:
            self._append(stop)
        if self._repairs.is_due:
            self.repair()

    def tend(self) -> None:
        """Do whatever is due, without new records. Raises OSError, as `snapshot` does."""
        if self._repairs.is_due:
            self.repair()
        if self._clock() >= self._snapshot_due_at:
            self.snapshot()

    def repair(self) -> None:
        """Rewrite the files that are behind from the journal."""
        if self._files.behind and self._beginning is not None:
            with self._repairs:
                self._rewrite(set(self._files.behind), self._beginning, self.position)

    def snapshot(self) -> None:
        """Write a snapshot if anything has happened since the last one. Raises OSError."""
        if not self._has_news:
            return
        self._folders.sweep_ended(self._fold.machine)
        self._save(self._taken(self._fold, self._files.behind))
        self._saved = self._fold.position

    @property
    def _snapshot_due_at(self) -> float:
        """Later while the journal has grown by less than a snapshot has, so that both together
        write at most twice the journal."""
        due_at, saved, now_at = self._snapshots.due_at, self._saved, self.position
        has_grown = (
            saved is None
            or saved.segment != now_at.segment
            or now_at.offset - saved.offset >= self._saved_bytes
        )
        return due_at if has_grown else due_at + (_PERIODS - 1) * self._settings.snapshot_period_s

    def _taken(self, fold: Fold, unwritten: Iterable[str]) -> Snapshot:
        """The snapshot at the position of `fold`, which has read at least one record."""
        return Snapshot(
            machine=fold.machine,
            last=fold.last,
            begun_at=fold.begun_at,
            boot_id=self._boot,
            unwritten=tuple(unwritten),
            unswept=self._folders.unswept(fold.machine),
            files=self._files.notes(fold.machine),
        )

    def _save(self, taken: Snapshot) -> None:
        with self._snapshots:
            self._saved_bytes = write_snapshot(self._layout, taken)

    def _save_within(self, fold: Fold, *, anew: bool = False) -> None:
        """Save while catching up, so that readers of the experiment, or the next projector, start
        here.

        With `anew`, all files are rewritten: those of final trials are put in place. Later records
        make the files of their trials stale again.
        """
        self._files.close_ended(fold.machine, forget=not anew)
        if anew:
            self._files.settle_ended()
        self._save(self._taken(fold, self._files.behind))

    def _save_partly_rewritten(self, end: Snapshot, stale: set[str], fold: Fold) -> None:
        """Save while some files are rewritten.

        The state at the `end` is already known. The snapshot lists the trials whose files are not
        yet as at the end.
        """
        self._files.close_ended(fold.machine, stale, forget=False)
        done = {
            trial_id
            for trial_id in self._files.settle_ended()
            if _is_as_at(end.machine.trials[trial_id], fold.machine.trials[trial_id])
        }
        left = (stale - done) | self._files.behind.keys()
        self._save(replace(end, unwritten=tuple(sorted(left))))

    @property
    def _has_news(self) -> bool:
        return bool(self._fold.last_payload) and self._saved != self.position

    def _begin(self, stop: Position | None) -> None:
        """Find the newest experiment and bring its files and the machine to a known state."""
        loaded = load_newest_snapshot(self._layout)
        if loaded.beginning is None:
            return
        beginning, taken = loaded.beginning.position, loaded.snapshot
        if taken is None:
            self._fold = self._rewrite(
                _EVERY_TRIAL, beginning, stop, save=partial(self._save_within, anew=True)
            )
        else:
            self._fold = self._continue_from(taken, beginning, stop)
        self._beginning = beginning
        self._folders.sweep_all(self._fold.machine)

    def sweep(self) -> None:
        """At the end: remove what is left in the folders of trials that have ended.

        A scheduler may end paused trials without running them again, for example.
        """
        self._folders.sweep_ended(self._fold.machine, again=True)

    def _continue_from(self, taken: Snapshot, beginning: Position, stop: Position | None) -> Fold:
        """Continue from a snapshot.

        If only the projector crashed, the files of trials that were final by then are intact.
        Files of trials that ran since may be torn, behind, or ahead of the snapshot: they continue
        from what it notes of them. Without a note they are rewritten from the beginning. After a
        crash of the system all files are, because they are not flushed to the disk.
        """
        is_same_boot = bool(self._boot) and taken.boot_id == self._boot
        stale = set(taken.unwritten if is_same_boot else taken.machine.trials)
        # The earlier lines of a policy's log follow only from the records since the beginning.
        is_continued = is_same_boot and not self._layout.policy_log.exists()
        before = dict(taken.machine.trials)
        if is_continued and taken.files is not None:
            self._files.resume(before, taken.files, except_for=stale)
        stale |= _unfinished(taken.machine) - {*self._files.alive}
        fold = Fold(taken.machine, taken.position, taken.begun_at)
        for event, now, trial in self._records(fold, stop, None):
            subject = subject_of(event)
            if subject is None or subject in stale:
                continue
            if is_continued:
                after = fold.machine.trials[subject]
                self._files.apply(event, now, trial, after, anew=True)
            elif not isinstance(event, INVISIBLE):
                stale.add(subject)
        if is_continued:
            self._settle(fold.machine)
        stale |= self._files.behind.keys() | (_unfinished(fold.machine) - {*self._files.alive})
        clean = _clean(taken, before, fold.machine) - stale
        self._folders.begin(fold.machine, clean)
        if is_continued and not stale:
            return fold
        unswept = self._folders.unswept(fold.machine)
        end = replace(taken, boot_id=self._boot, unswept=unswept)
        if fold.last_payload:
            end = self._taken(fold, ())
        save = partial(self._save_partly_rewritten, end, stale)
        rewritten = self._rewrite(stale, beginning, fold.position, save=save)
        self._folders.begin(rewritten.machine, clean)
        return rewritten

    def _append(self, stop: Position | None) -> None:
        """Append the records up to `stop` to the files."""
        fold = self._fold
        for event, now, before in self._records(fold, stop, self._save_within):
            if (trial_id := subject_of(event)) is not None:
                self._files.apply(event, now, before, fold.machine.trials[trial_id], anew=False)
        self._files.flush()
        self._write_log(self._log.flush)
        self._files.close_ended(fold.machine)

    def _rewrite(
        self,
        trial_ids: Container[str],
        start: Position,
        stop: Position | None,
        *,
        save: Callable[[Fold], None] | None = None,
    ) -> Fold:
        """Rewrite the files of these trials from the experiment's beginning at `start`."""
        fold = Fold(Machine(), start)
        self._log = PolicyLog(self._layout)
        for event, now, before in self._records(fold, stop, save):
            if isinstance(event, Recalled):
                self._adopt(fold.machine, trial_ids)
            trial_id = subject_of(event)
            if trial_id is not None and trial_id in trial_ids:
                self._files.apply(event, now, before, fold.machine.trials[trial_id], anew=True)
        self._settle(fold.machine)
        return fold

    def _settle(self, machine: Machine) -> None:
        """Put what was rewritten in place."""
        self._files.flush()
        self._files.settle()
        self._write_log(self._log.settle)
        self._files.close_ended(machine)

    def _records(
        self, fold: Fold, stop: Position | None, save: Callable[[Fold], None] | None
    ) -> Iterator[tuple[Event, float, Trial | None]]:
        """Yield what `Fold.run` yields; between records, flush the files and save the state."""
        flushed = fold.position
        for event, now, before in fold.run(self._layout.journal, stop):
            yield event, now, before
            self._log.take_in(event, fold.machine)
            read_bytes = fold.position.offset - flushed.offset
            if read_bytes >= _FLUSH_BYTES or fold.position.segment != flushed.segment:
                self._files.flush()
                flushed = fold.position
                self._pause(fold, save)

    def _adopt(self, machine: Machine, trial_ids: Container[str]) -> None:
        """Take rows whose records are lost from the existing files."""
        self._log.adopt(machine)
        for trial in machine.trials.values():
            if trial.trial_id in trial_ids:
                self._files.create(trial.spec, anew=True)
                self._files.adopt(trial)

    def _pause(self, fold: Fold, save: Callable[[Fold], None] | None) -> None:
        """Within a long journal: report progress, and call `save` if a snapshot is due."""
        self._progress(*passed(self._layout.journal, fold.position))
        if save is not None and self._snapshots.is_due:
            with suppress(OSError):  # a full disk: reported if the snapshot at the end fails, too
                save(fold)

    def _write_log(self, write: Callable[[], None]) -> None:
        """Write the policy's log; if that fails, rewrite it later with the files of the cloned
        trials."""
        try:
            write()
        except OSError as error:
            for trial_id in self._log.unwritten:
                self._files.give_up(trial_id, error)


def passed(journal: Path, position: Position) -> tuple[int, int]:
    """The bytes of the journal before a position, and in total."""
    sizes = {number: segment_size(journal, number) for number in segments(journal)}
    before = sum(size for number, size in sizes.items() if number < position.segment)
    return before + position.offset, sum(sizes.values())


def _is_as_at(end: Trial, now: Trial) -> bool:
    """True if the files of a trial are already in their final state."""
    return (end.status, end.attempt, end.iteration) == (now.status, now.attempt, now.iteration)


def _clean(taken: Snapshot, before: Mapping[str, Trial], machine: Machine) -> set[str]:
    """The trials whose folders were clean at the snapshot, and that no record has changed since;
    `before` has its trials."""
    if taken.unswept is None:
        return set()
    unswept, trials = frozenset(taken.unswept), machine.trials
    return {
        trial_id
        for trial_id, trial in before.items()
        if trials.get(trial_id) is trial and trial.spec.dirname not in unswept
    }


def _unfinished(machine: Machine) -> set[str]:
    return {trial.trial_id for trial in machine.trials.values() if not trial.status.is_final}
