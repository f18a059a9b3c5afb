"""Follows an experiment: it is read as a whole once, and then record by record.

The live page, `holdfast show --watch` and `holdfast logs --follow` share this. A record takes
9 us: a run with a thousand reports a second costs 1 % of a core.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import BEGINS, find_beginning, replay, unpack
from holdfast.experiment.records.recovery import subject_of
from holdfast.experiment.records.view import Condition, ExperimentView, counts
from holdfast.results.reading import KeptRecords, RunStarts, published_as
from holdfast.scheduler.events import EndOrdered, Event, Recalled, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.journal import (
    Position,
    read,
    read_segment,
    segment_name,
    segments,
)
from holdfast.syncer.journal.stretches import segment_size
from holdfast.syncer.stores.store import ObjectInfo
from holdfast.syncer.uploader.lock import current_holder
from holdfast.trial.best import leader
from holdfast.trial.events import Reported

# The pause between two reads, in times of their CPU time: at most a twentieth of a core. Reading
# the records of 10,000 trials takes a second.
PAUSE_PER_CPU_S: Final = 20
# Reading an object is a request that costs money.
INTERVAL_STORAGE_S: Final = 5.0
# A look at this machine costs some 10 ms with a few trials.
_HERE_S: Final = 1.0
# How often the lock is asked whether a process runs the experiment.
_HOLDER_S: Final = 2.0
# The newest records whose events `newest_events` returns.
_NEWEST: Final = 10_000
# Records that are applied at once; readers of the state wait meanwhile, for 0.1 s.
_AT_ONCE: Final = 10_000


class JournalReplaced(Exception):
    """The journal is another one than before, has been cut, or another run has begun in it."""


@dataclass(slots=True)
class News:
    """The changes since the last `take_news`: the trials that may have `changed`, all of
    them if `is_all`.

    `is_more`: something else than reports. `is_loaded`: the experiment was read as a whole.
    """

    changed: set[str] = field(default_factory=set)
    reports: int = 0
    is_more: bool = False
    is_all: bool = False
    is_loaded: bool = False


class Followed:
    """The state of an experiment. One thread at a time calls `look`; who reads the machine
    meanwhile holds `lock`.

    `find` reads the experiment, what is in storage to the records given. `on_event` gets each
    event that was applied, in the thread that looks. `clock` returns seconds since any fixed
    start, `now` seconds since 1970. `view` is as of the last look.
    """

    def __init__(
        self,
        find: Callable[[KeptRecords], ExperimentView],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Raises what `find` raises."""
        self._find, self._clock, self._now, self._on_event = find, clock, now, on_event
        self.lock = threading.Lock()
        self.view: ExperimentView
        self.is_live = False
        self._news = News()
        self._kept = KeptRecords()
        self._head: ObjectInfo | None = None
        self._fault = ""
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Forget what was downloaded."""
        self._kept.close()

    @property
    def machine(self) -> Machine:
        return self.view.machine

    @property
    def is_stored(self) -> bool:
        """True if the records are downloaded."""
        return self.view.layout is None

    def take_news(self) -> News:
        """The changes that were read since the last call."""
        news, self._news = self._news, News()
        return news

    def as_it_is(self) -> ExperimentView:
        """The experiment with all its trials, which stays as it is while others look. The caller
        holds the lock."""
        machine = copy.copy(self.machine)
        machine.trials = dict(machine.trials)
        machine.clones = {source: set(clones) for source, clones in machine.clones.items()}
        return replace(self.view, machine=machine)

    def look(self) -> None:
        """Read what is new: costs a stat of the journal if nothing is. Raises ExperimentNotFound
        once the experiment has been deleted, StorageError, OSError; the state before stays."""
        try:
            if self._must_load:
                self._load()
            if self.is_stored:
                self._download()
            is_more = self._has_grown() and not self._fault
            while is_more:
                is_more = self._apply()
        except JournalReplaced:
            self._load()
        except UnreadableRecord as error:  # of a newer version, or damaged: what is known stays
            self._fault = str(error)
            self.view = replace(self.view, notices=(*self.view.notices, self._fault))
            self._news.is_more = True
        self._look_at_lock()

    def newest_events(self) -> Iterator[Event]:
        """The newest of the events that were read with the experiment as a whole."""
        end = self._position
        found = read_segment(self._journal, end.segment, 0, end.offset) if end.offset else ()
        for payload in deque((payload for payload, _ in found), maxlen=_NEWEST):
            with suppress(UnreadableRecord):
                yield unpack(payload).event

    @property
    def _journal(self) -> Path:
        return (self.view.layout or Layout(self._kept.root)).journal

    def _load(self) -> None:
        """Read the experiment as a whole. Raises what `find` raises."""
        self._must_load = True
        found = self._find(self._kept)
        head = published_as(found.location) if found.layout is None else None
        with self.lock:
            self.view, self._head, self._position, self._fault = found, head, found.end, ""
            self.is_live = found.condition(self._now()) is Condition.LIVE
        self._file = self._identity()
        self._holder_at = self._clock()
        self._news = News(is_loaded=True, is_more=True, is_all=True)
        self._must_load = False

    def _download(self) -> None:
        """Download new records. Raises JournalReplaced, StorageError."""
        head = published_as(self.view.location)
        if head is None or head == self._head:
            return
        self._kept.refresh(self.view.location)
        self._head = head
        self.view = replace(self.view, heard_at=head.modified)
        begins = find_beginning(self._journal)
        if begins is None or begins.spec.experiment_id != self.machine.spec.experiment_id:
            raise JournalReplaced

    def _has_grown(self) -> bool:
        """Raises JournalReplaced, OSError."""
        at = self._position
        try:
            is_same = self._identity() == self._file
            size = segment_size(self._journal, at.segment)
        except FileNotFoundError:
            raise JournalReplaced from None
        if not is_same or size < at.offset:
            raise JournalReplaced
        following = self._journal / segment_name(at.segment + 1)
        return size > at.offset or os.path.lexists(following)

    def _identity(self) -> tuple[int, int]:
        """Of the segment that is being read; a download replaces it by a longer one."""
        found = os.stat(self._journal / segment_name(self._position.segment))
        return (0, 0) if self.is_stored else (found.st_dev, found.st_ino)

    def _apply(self) -> bool:
        """Apply the next records; returns whether there may be more. Raises JournalReplaced,
        UnreadableRecord, OSError."""
        count, before = 0, self._position
        with self.lock:
            for payload, position in islice(read(self._journal, before), _AT_ONCE):
                self._apply_one(payload, position)
                count += 1
        if self._position.segment != before.segment:
            self._file = self._identity()
        return count == _AT_ONCE

    def _apply_one(self, payload: bytes, position: Position) -> None:
        record = unpack(payload, position)
        event, news = record.event, self._news
        if isinstance(event, BEGINS):
            raise JournalReplaced
        replay(self.machine, record, payload, position)
        self._position = position
        if (trial_id := subject_of(event)) is not None:
            news.changed.add(trial_id)
        news.changed.update(self.machine.moved)
        is_report = isinstance(event, Reported)
        news.reports += is_report
        news.is_all |= isinstance(event, (Recalled, Resumed, EndOrdered))
        if not is_report:
            news.is_more, self._holder_at = True, 0.0  # perhaps the run has ended
        self._on_event(event)

    def _look_at_lock(self) -> None:
        """Read from the lock whether a process runs it, every 2 s and after other events than
        reports."""
        layout, at = self.view.layout, self._clock()
        is_due = at - self._holder_at >= _HOLDER_S or self.machine.finished
        if layout is not None and is_due:
            self._holder_at = at
            holder = "" if self.view.is_followed else current_holder(layout.lock)
            if holder != self.view.holder:
                self.view = replace(self.view, holder=holder)
                self._news.is_more = True
        is_live = self.view.condition(self._now()) is Condition.LIVE
        if is_live == self.is_live:
            return
        if not is_live and self._rest_bytes:
            self._load()  # its notices say what cannot be read
            return
        self.is_live = is_live
        unfinished = (one for one in self.machine.trials.values() if not one.status.is_final)
        self._news.changed.update(trial.trial_id for trial in unfinished)
        self._news.is_more = True

    @property
    def _rest_bytes(self) -> int:
        """The bytes after the last whole record. Raises OSError."""
        newest = max(segments(self._journal), default=self._position.segment)
        rest = segment_size(self._journal, newest)
        return rest - self._position.offset if newest == self._position.segment else rest


class Watcher:
    """Yields an experiment as it was just read, and whether it differs from the one before in more
    than its age.

    `find` reads the experiment. `wait` is called with a number of seconds, `tell` with a line for
    the user. `cpu` and `clock` return seconds since any fixed start, `now` since 1970.
    """

    def __init__(
        self,
        find: Callable[[KeptRecords], ExperimentView],
        interval_s: float | None,
        *,
        wait: Callable[[float], None],
        tell: Callable[[str], None],
        cpu: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._find, self._interval_s, self._wait = find, interval_s, wait
        self._tell, self._cpu, self._clock, self._now = tell, cpu, clock, now
        self._told: set[str] = set()
        self._followed: Followed | None = None

    def views(self) -> Iterator[tuple[ExperimentView, bool]]:
        """The last one is that of an experiment that no process runs.

        Retries while storage does not answer. Raises what `find` raises at the first look, and
        ExperimentNotFound once the experiment has been deleted.
        """
        shown: object = None
        try:
            while True:
                used_s = self._cpu()
                if (experiment := self._look()) is not None:
                    condition = experiment.condition(self._now())
                    before, shown = shown, _shown(experiment, condition)
                    yield experiment, shown != before
                    if condition is not Condition.LIVE:
                        return
                self._wait(max(self._pause_s(), PAUSE_PER_CPU_S * (self._cpu() - used_s)))
        finally:
            if self._followed is not None:
                self._followed.close()

    def _look(self) -> ExperimentView | None:
        try:
            if self._followed is None:
                self._followed = Followed(self._find, clock=self._clock, now=self._now)
            else:
                self._followed.look()
        except RunStarts as error:
            self._say(error.state)
            return None
        except (StorageError, OSError) as error:
            if self._followed is None:
                raise
            self._say(f"{error}. Retrying")
            return None
        self._told.clear()
        return self._followed.view

    def _pause_s(self) -> float:
        if self._interval_s is not None:
            return self._interval_s
        is_stored = self._followed is not None and self._followed.is_stored
        return INTERVAL_STORAGE_S if is_stored else _HERE_S

    def _say(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def _shown(experiment: ExperimentView, condition: Condition) -> object:
    """The parts of a view that a reader sees change, without the ages."""
    machine = experiment.machine
    best = leader(machine.trials.values(), machine.spec.metric, machine.spec.mode)
    return (
        condition,
        counts(machine),
        sum(trial.iteration for trial in machine.trials.values()),
        None if best is None else (best.trial_id, best.iteration),
        machine.epoch,
        experiment.run,
    )
