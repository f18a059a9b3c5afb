"""Decides when the journal is published in storage, and whose artifacts are sent with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.scheduler.machine import Machine
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.journal.journal import MAGIC, START
from holdfast.syncer.journal.segment import Position
from holdfast.syncer.uploader.messages import Publish, SendFiles
from holdfast.trial.config import SyncConfig
from holdfast.trial.trial import Trial

# The records that name a committed checkpoint are published this soon, at the latest.
_SOON_S = 10.0
# So many ended trials in a message.
_AT_ONCE = 10_000
# A timer may fire a moment early.
_NEARLY_S = 0.05


class Publishing:
    """Publishes every `sync_period`, soon after a commit, and on demand.

    `begins` is the journal's segment in which the experiment begins.
    """

    def __init__(
        self,
        journal_writer: JournalWriter,
        *,
        send: Callable[[SendFiles | Publish], None],
        begins: int,
        sync: SyncConfig,
        is_timed: bool,
    ) -> None:
        """`is_timed` is False if storage is local: then it publishes only on demand."""
        self._journal_writer = journal_writer
        self._send = send
        self._begins = begins
        self._period_s = sync.sync_period
        self._rounds: ArtifactRounds | None = None
        if sync.sync_artifacts and is_timed:
            self._rounds = ArtifactRounds(
                period_s=sync.sync_period, with_checkpoints=sync.sync_artifacts_on_checkpoint
            )
        self._is_timed = is_timed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at: dict[Position, float] = {}
        self._ordered = self._published = START
        self.published_at = wall_time()
        self._within(sync.sync_period)

    def committed(self, trial_folder: str | None) -> None:
        """Publish soon: another machine can use a checkpoint once the published records name
        it."""
        if self._rounds is not None and trial_folder is not None:
            self._rounds.committed(trial_folder)
        self._within(_SOON_S)

    def published(self, end: Position) -> None:
        """Record that everything before `end` is visible. `published_at` is when that was ordered
        (seconds since 1970)."""
        self._published = max(self._published, end)
        self.published_at = self._asked_at.get(end, self.published_at)
        self._asked_at = {known: at for known, at in self._asked_at.items() if known > end}

    def publish(self, *, whole: bool = True) -> None:
        """Publish the journal once it is durable here.

        With it go the artifacts of all trials (`whole`), or of those whose turn it is.
        """
        self._cancel()
        due_s = self._period_s
        if self._rounds is not None:
            now = self._loop.time()
            folders = self._rounds.take(now, whole=whole)
            if folders is None or folders:
                self._send(SendFiles(folders=folders))
            due_s = self._rounds.due_in_s(now)
        self._within(due_s)
        end = self._journal_writer.position
        if end > Position(self._begins, len(MAGIC)):
            self._asked_at[end] = wall_time()
            self._journal_writer.when_durable(lambda: self._order(end))
        else:  # there is no record yet, as while nodes start: storage lacks nothing
            self.published_at = wall_time()

    def order_again(self) -> None:
        """Repeat the orders that an uploader may not have performed before it died."""
        if self._rounds is not None:
            self._send(SendFiles(folders=None))
        if self._ordered > self._published:
            self._order(self._ordered)

    def stop(self) -> None:
        """From now on publish only on demand."""
        self._is_timed = False
        self._cancel()

    def _order(self, end: Position) -> None:
        self._ordered = end
        self._send(Publish(segment=end.segment, offset=end.offset, begins=self._begins))

    def _within(self, delay_s: float) -> None:
        """Publish within `delay_s`."""
        if not self._is_timed:
            return
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, lambda: self.publish(whole=False))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ArtifactRounds:
    """Sends the artifacts of all trials once in `period_s`.

    With `with_checkpoints`, a publication in between sends those of trials that have committed a
    checkpoint. Times are in seconds from any fixed start.
    """

    def __init__(self, *, period_s: float, with_checkpoints: bool) -> None:
        self._period_s = period_s
        self._with_checkpoints = with_checkpoints
        self._committed: set[str] = set()
        self._whole_at: float | None = None

    def committed(self, folder: str) -> None:
        """Note that the trial in this folder has a new checkpoint in storage."""
        if self._with_checkpoints:
            self._committed.add(folder)

    def due_in_s(self, now: float) -> float:
        """Seconds until it is the turn of all trials."""
        begun = now if self._whole_at is None else self._whole_at
        return max(0.0, begun + self._period_s - now)

    def take(self, now: float, *, whole: bool) -> list[str] | None:
        """The folders of the trials whose turn it is now; None for all."""
        committed, self._committed = sorted(self._committed), set()
        if whole or self._whole_at is None or self.due_in_s(now) < _NEARLY_S:
            self._whole_at = now
            return None
        return committed


class EndedTrials:
    """The ended trials that the uploader was told of, each as the value that it had then.

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
        """The folders of trials that have ended, each with a fingerprint that differs if the trial
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
                yield trial.spec.dirname, self._fingerprint(trial)
            elif told is not None:
                del self._told[trial_id]
                self._waiting.pop(trial_id, None)
                yield trial.spec.dirname, ""

    def _has_ended(self, trial: Trial) -> bool:
        """True if nothing more comes into its folder, neither of its worker nor of its uploads."""
        is_committed = all(checkpoint.committed for checkpoint in trial.checkpoints)
        return is_committed and self._machine.has_left(trial)

    def written(self, written: Position) -> Iterator[dict[str, str]]:
        """Those of the told folders whose files are written by now, with their fingerprints: all
        files of trials are as the journal up to this position."""
        done = [trial_id for trial_id, end in self._waiting.items() if end <= written]
        for trial_id in done:
            del self._waiting[trial_id]
        told = (self._told[trial_id] for trial_id in done)
        return _in_parts((trial.spec.dirname, self._fingerprint(trial)) for trial in told)

    def _fingerprint(self, trial: Trial) -> str:
        """After another boot the projector writes all files anew."""
        now = (trial.status.name, trial.attempt, trial.iteration, trial.reported_at)
        return " ".join(map(str, (*now, trial.place.pid, self._boot)))


def _in_parts(items: Iterator[tuple[str, str]]) -> Iterator[dict[str, str]]:
    while part := dict(islice(items, _AT_ONCE)):
        yield part
