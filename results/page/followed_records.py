"""The records of an experiment: read as a whole once, and then only what is new."""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import find_beginning
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.results.page.entries import Entries
from holdfast.results.page.folding import AnotherBegins, Folding
from holdfast.results.page.history import History
from holdfast.results.reading import KeptRecords, published_as
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.journal.journal import (
    MAGIC,
    Position,
    read,
    read_segment,
    segment_name,
    segments,
)
from holdfast.syncer.journal.segment import begins_at, takeovers
from holdfast.syncer.journal.stretches import SegmentFile, segment_size
from holdfast.syncer.stores.store import ObjectInfo
from holdfast.syncer.uploader.lock import current_holder

# How often the lock is asked whether a process runs the experiment.
_HOLDER_S: Final = 2.0
# The reports of so many seconds give their rate.
_RATE_S: Final = 10.0
# The newest records whose reports are kept when an experiment is read.
_NEWEST: Final = 10_000
# A journal of this size is read in 0.1 s; that of a larger experiment only after its first page.
_SMALL_BYTES: Final = 16 << 20
_BLOCK: Final = 4 << 20
AT_ONCE: Final = 50_000


class FollowedRecords:
    """The state of an experiment. One thread at a time calls `look` and `scan`; who reads the
    state meanwhile holds `lock`.

    `find` reads the experiment, what is in storage to the records given. `clock` returns seconds
    since any fixed start, `now` seconds since 1970. `experiment` is as of the last look, and
    `history` None until `scan` has read it. `reset_at`: pages with an earlier version must read
    everything again. `is_dirty`: something has changed since the reader of the state has cleared
    it.
    """

    def __init__(
        self,
        find: Callable[[KeptRecords], ExperimentView],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """Raises what `find` raises."""
        self._find, self._clock, self._now = find, clock, now
        self.lock = threading.Lock()
        self._kept = KeptRecords()
        self.reset_at = int(now() * 1_000)
        self.entries = Entries(self.reset_at)
        self.history: History | None = None
        self.is_dirty, self.is_live = True, False
        self.experiment: ExperimentView
        self.folding: Folding
        self._tail: JournalTail
        self._head: ObjectInfo | None = None
        self._fault = ""
        self._must_load = True
        self._holder_at = self._loaded_at = 0.0
        self._rate: deque[tuple[float, int]] = deque()
        try:
            self._load(None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Forget what was downloaded."""
        self._kept.close()

    @property
    def machine(self) -> Machine:
        return self.folding.machine

    @property
    def is_stored(self) -> bool:
        return self.experiment.layout is None

    def as_it_is(self) -> ExperimentView:
        """The experiment with all its trials, which stays as it is while others look. The caller
        holds the lock."""
        machine = copy.copy(self.machine)
        machine.trials = dict(machine.trials)
        machine.clones = {source: set(clones) for source, clones in machine.clones.items()}
        return replace(self.experiment, machine=machine)

    @property
    def signs(self) -> tuple[object, ...]:
        """Changes when something happens that is not only the progress of a trial."""
        history = self.history
        heard = None if history is None else len(history.happenings) + history.left_out
        return self.is_live, self.experiment.holder, heard, self.reset_at

    @property
    def reports_per_s(self) -> float | None:
        """Over the last 10 s; None until a while has been watched."""
        at = self._clock()
        watched_s = at - self._loaded_at
        known = [count for when, count in self._rate if when >= at - _RATE_S]
        if not known:
            return 0.0 if watched_s >= _RATE_S else None
        return sum(known) / max(1.0, min(_RATE_S, watched_s))

    def look(self) -> None:
        """Read what is new. Raises ExperimentNotFound once the experiment has been deleted,
        StorageError, OSError; the state before stays."""
        try:
            if self._must_load:
                self._load(self.machine)
            if self.is_stored:
                self._download()
            if self._fault:
                self._tail.check()
            is_more = not self._fault
            while is_more and (news := self._tail.news()):
                self._apply(news)
                is_more = len(news) >= AT_ONCE
        except (JournalReplaced, AnotherBegins):
            self._must_load = True
            self._load(self.machine)
        except UnreadableRecord as error:  # of a newer version, or damaged: what is known stays
            self._fault = str(error)
            notices = (*self.experiment.notices, self._fault)
            self.experiment = replace(self.experiment, notices=notices)
            self.is_dirty = True
        self._look_at_lock()

    def scan(self) -> None:
        """Read the attempts and the timeline from the whole journal, once. Only the thread that
        looks moves the end of the journal, so this needs no lock. Raises OSError."""
        if self.history is None:
            history = History()
            begins = self.experiment.begins
            hear_journal(self._journal_of(self.experiment), begins, self._tail.end, history)
            self.history, self.is_dirty = history, True

    def _journal_of(self, experiment: ExperimentView) -> Path:
        layout = experiment.layout
        return (layout or Layout(self._kept.root)).journal

    def _load(self, before: Machine | None) -> None:
        """Read the experiment as a whole. Raises what `find` raises."""
        found = self._find(self._kept)
        is_stored = found.layout is None
        head = published_as(found.location) if is_stored else None
        end = found.end
        journal = self._journal_of(found)
        tail = JournalTail(journal, end, is_download=is_stored)
        folding = Folding(found.machine)
        if not found.machine.finished:  # else the files have all rows
            for payload in newest_records(journal, end, _NEWEST):
                folding.remember(payload)
        with self.lock:
            if before is not None and not _continues(before, found.machine):
                self.entries = Entries(max(self.entries.version + 1, int(self._now() * 1_000)))
                self.reset_at = self.entries.version
            self.experiment, self.folding = found, folding
            self._tail, self._head = tail, head
            self.history, self._fault, self.is_dirty = None, "", True
            self._holder_at = self._loaded_at = self._clock()
            self._rate.clear()
            self.is_live = found.condition(self._now()) is Condition.LIVE
            trials = list(found.machine.trials)
            self.entries.update(found.machine, trials, is_live=self.is_live)
            self._must_load = False
        if tail.size_bytes <= _SMALL_BYTES:
            self.scan()

    def _download(self) -> None:
        """Download new records. Raises JournalReplaced, StorageError."""
        location = self.experiment.location
        head = published_as(location)
        if head is None or head == self._head:
            return
        self._kept.refresh(location)
        self._head = head
        self.experiment = replace(self.experiment, heard_at=head.modified)
        begins = find_beginning(self._journal_of(self.experiment))
        if begins is None or begins.spec.experiment_id != self.machine.spec.experiment_id:
            raise JournalReplaced

    def _apply(self, news: Sequence[tuple[bytes, Position]]) -> None:
        history = self.history
        with self.lock:
            folded = self.folding.apply(
                news, (lambda payload: None) if history is None else history.hear
            )
            trials = self.machine.trials
            changed: list[str] = list(trials)
            if not folded.is_all:  # new ones in the order of their numbers
                changed = sorted(folded.changed, key=lambda one: trials[one].spec.index)
            self.entries.update(self.machine, changed, is_live=self.is_live)
        self.is_dirty |= bool(folded.reports) or folded.is_more
        if folded.is_more:
            self._holder_at = 0.0  # perhaps the run has ended
        at = self._clock()
        self._rate.append((at, folded.reports))
        while self._rate[0][0] < at - _RATE_S:
            self._rate.popleft()

    def _look_at_lock(self) -> None:
        """Whether a process runs it: ask the lock every 2 s, and after the end of a trial."""
        layout = self.experiment.layout
        at = self._clock()
        if layout is not None and at - self._holder_at >= _HOLDER_S:
            self._holder_at = at
            holder = "" if self.experiment.is_followed else current_holder(layout.lock)
            if holder != self.experiment.holder:
                self.experiment = replace(self.experiment, holder=holder)
                self.is_dirty = True
        is_live = self.experiment.condition(self._now()) is Condition.LIVE
        if is_live == self.is_live:
            return
        if not is_live and self._tail.rest_bytes:
            self._load(self.machine)  # its notices say what cannot be read
            return
        with self.lock:
            self.is_live, self.is_dirty = is_live, True
            trials = self.machine.trials.values()
            unfinished = [trial.trial_id for trial in trials if not trial.status.is_final]
            self.entries.update(self.machine, unfinished, is_live=is_live)


def _continues(before: Machine, after: Machine) -> bool:
    """Whether it is the same run, and no trial is missing that was there before."""
    is_same = before.spec.experiment_id == after.spec.experiment_id
    return is_same and before.trials.keys() <= after.trials.keys()


class JournalReplaced(Exception):
    """The journal is not the one that was read before, or has been cut."""


class JournalTail:
    """The records after the position `end`, which moves on as they are read.

    `is_download`: the files were downloaded, and another download replaces them by longer ones.
    """

    def __init__(self, journal: Path, end: Position, *, is_download: bool = False) -> None:
        """Raises OSError."""
        self._journal = journal
        self._is_download = is_download
        self.end = end
        self._file = self._identity()

    def check(self) -> int:
        """The size of the segment that is being read. Raises JournalReplaced, OSError."""
        try:
            is_same = self._identity() == self._file
            size = segment_size(self._journal, self.end.segment)
        except FileNotFoundError:
            raise JournalReplaced from None
        if not is_same or size < self.end.offset:
            raise JournalReplaced
        return size

    def news(self) -> list[tuple[bytes, Position]]:
        """The next new records, at most AT_ONCE. Raises JournalReplaced, OSError."""
        size = self.check()
        following = self._journal / segment_name(self.end.segment + 1)
        if size == self.end.offset and not os.path.lexists(following):
            return []
        news = list(islice(read(self._journal, self.end), AT_ONCE))
        if news:
            before, self.end = self.end, news[-1][1]
            if before.segment != self.end.segment:
                self._file = self._identity()
        return news

    @property
    def size_bytes(self) -> int:
        """The size of all segments up to the end. Raises OSError."""
        known = [number for number in segments(self._journal) if number <= self.end.segment]
        return sum(segment_size(self._journal, number) for number in known)

    @property
    def rest_bytes(self) -> int:
        """The bytes after the last whole record. Raises OSError."""
        newest = max(segments(self._journal), default=self.end.segment)
        rest = segment_size(self._journal, newest)
        return rest - self.end.offset if newest == self.end.segment else rest

    def _identity(self) -> tuple[int, int]:
        found = os.stat(self._journal / segment_name(self.end.segment))
        return (0, 0) if self._is_download else (found.st_dev, found.st_ino)


def newest_records(journal: Path, end: Position, most: int) -> Iterable[bytes]:
    """The payloads of the newest records of the last segment before `end`. Raises OSError."""
    records = read_segment(journal, end.segment, 0, end.offset) if end.offset else ()
    return deque((payload for payload, _ in records), maxlen=most)


def hear_journal(journal: Path, begins: int, end: Position, history: History) -> None:
    """Let the history hear all records from the segment `begins` to `end`. Raises OSError."""
    known = [number for number in segments(journal) if begins <= number <= end.segment]
    if list(takeovers(journal, known[1:])):  # rare: after a failed fsync
        for payload, _ in read(journal, Position(begins), end):
            history.hear(payload)
        return
    for expected, number in enumerate(known, begins):
        if number != expected or not _hear_segment(
            journal, number, end.offset if number == end.segment else None, history
        ):
            return


def _hear_segment(journal: Path, number: int, limit: int | None, history: History) -> bool:
    """True if it was read to its end, or to the offset `limit`."""
    end = segment_size(journal, number) if limit is None else limit
    with SegmentFile(journal, number) as file:
        at = begins_at(file, journal / segment_name(number))
        if not at:
            return end <= len(MAGIC)
        rest = b""
        while at + len(rest) < end:
            data = rest + file.read(min(max(_BLOCK, 2 * len(rest)), end - at - len(rest)))
            if len(data) == len(rest):
                break
            heard = history.hear_frames(data)
            at, rest = at + heard, data[heard:]
            if not heard and at + len(data) >= end:
                break
    return at >= end
