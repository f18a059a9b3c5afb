"""The records of an experiment: read as a whole once, and then only what is new.

A thousand reports a second would take 2 % of a core in the machine alone. So `Folding` skips a
report that only changes the numbers of its trial, if a newer one of the trial follows: the machine
is then as if it had handled both. `tests/experiment/page/test_folding.py` compares it with a
machine that has handled every record.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgpack

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import BEGINS, find_beginning, replay, unpack
from holdfast.experiment.records.recovery import subject_of
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.results.page.entries import Entries
from holdfast.results.page.rows import Recent
from holdfast.results.reading import KeptRecords, published_as
from holdfast.scheduler.codec import Record
from holdfast.scheduler.events import EndOrdered, Exited, Raised, Recalled, Resumed, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
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
from holdfast.trial.events import (
    Committed,
    ConstraintViolated,
    Measured,
    Reported,
    Returned,
    Saved,
    Started,
)
from holdfast.trial.metrics import reaches
from holdfast.trial.trial import Status

# These change one trial and start waiting ones; they never change another trial that reports.
_OF_ONE_TRIAL: Final = (
    Started,
    Suggested,
    Returned,
    Exited,
    Raised,
    Measured,
    ConstraintViolated,
    Committed,
    Saved,
    Reported,
)
_NUMBERS: Final = (int, float)
_TIMES: Final = ("time_this_iter_s", "time_total_s", "timestamp")
# Bounds of these are rare: a report that may reach one is not skipped.
_EARLY: Final = {name: float("inf") for name in ("iterations_since_restore", "time_since_restore")}


class AnotherBegins(Exception):
    """A record that cannot be applied: another run has begun in the folder, or the run has ended
    in a way that the skipped reports may matter for. Read the experiment again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The changes of a batch of records. `reports` counts all reports, also skipped ones.

    `is_more`: some record was more than a report. `is_all`: any trial may have changed.
    """

    changed: frozenset[str]
    reports: int
    is_more: bool
    is_all: bool


class Folding:
    """One machine, and the newest rows of its trials."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.recent = Recent()
        # By trial: the attempt whose reports may be skipped, 0 if none may. Until the next record
        # of another kind.
        self._skipping: dict[str, int] = {}
        # By trial: its newest report, which the machine has not handled yet.
        self._waiting: dict[str, tuple[bytes, Position]] = {}
        self._changed: set[str] = set()
        self._reports = 0
        self._is_more = self._is_all = False

    def apply(self, records: Iterable[tuple[bytes, Position]]) -> Folded:
        """Raises AnotherBegins, and UnreadableRecord for a record that this version cannot use.
        The records before it have then been applied."""
        self._changed, self._reports = set(), 0
        self._is_more = self._is_all = False
        try:
            for payload, position in records:
                fields = _progress_in(payload)
                if fields is not None and self._is_skippable(fields):
                    self._waiting[fields["trial_id"]] = payload, position
                    self._add(fields)
                else:
                    self._on_record(payload, position)
        finally:
            self._flush_all()
        return Folded(
            changed=frozenset(self._changed),
            reports=self._reports,
            is_more=self._is_more,
            is_all=self._is_all,
        )

    def remember(self, payload: bytes) -> None:
        """Keep the row of a record that the machine has handled before, if it is a report's."""
        record = _report_in(payload)
        if record is not None and record[2]["trial_id"] in self.machine.trials:
            self._add(record[2])

    def _is_skippable(self, fields: Mapping[str, Any]) -> bool:
        trial_id = fields["trial_id"]
        if (attempt := self._skipping.get(trial_id)) is None:
            attempt = self._skipping[trial_id] = self._running_attempt(trial_id)
        stop = self.machine.spec.stop
        return fields.get("attempt") == attempt != 0 and not (stop and _may_reach(fields, stop))

    def _running_attempt(self, trial_id: str) -> int:
        machine, trial = self.machine, self.machine.trials.get(trial_id)
        if trial is None or trial.status is not Status.RUNNING:
            return 0
        may_change = (
            trial.is_held
            or trial.spec.resources.is_elastic
            or trial_id in machine.questions
            or machine.spec.has_stopper
            or not machine.expected.is_met
        )
        return 0 if may_change else trial.attempt

    def _on_record(self, payload: bytes, position: Position) -> None:
        record = unpack(payload, position)
        event, ending = record.event, self.machine.ending
        if isinstance(event, BEGINS):
            raise AnotherBegins
        trial_id = subject_of(event)
        if isinstance(event, _OF_ONE_TRIAL) and not record.answers and trial_id is not None:
            self._flush(trial_id)
        else:
            self._flush_all()
        self._skipping.clear()
        self._replay(record, payload, position)
        if self.machine.ending is not ending and not isinstance(event, (EndOrdered, Resumed)):
            raise AnotherBegins
        self._is_more |= not isinstance(event, Reported)
        self._is_all |= isinstance(event, (Recalled, Resumed, EndOrdered))
        if trial_id is None:
            return
        self._changed.add(trial_id)
        if isinstance(event, Started):
            self.recent.roll_back(trial_id, self.machine.trials[trial_id].resumed_from)
        elif plain := _report_in(payload):
            self._add(plain[2])

    def _add(self, fields: Mapping[str, Any]) -> None:
        self._reports += 1
        self.recent.add(
            fields["trial_id"],
            fields["iteration"],
            fields["time_total_s"],
            fields["timestamp"],
            fields["metrics"],
        )

    def _flush_all(self) -> None:
        self._skipping.clear()
        oldest_first = sorted(self._waiting, key=lambda one: self._waiting[one][1])
        for trial_id in oldest_first:
            self._flush(trial_id)

    def _flush(self, trial_id: str) -> None:
        if (newest := self._waiting.pop(trial_id, None)) is not None:
            self._changed.add(trial_id)
            self._replay(unpack(*newest), *newest)

    def _replay(self, record: Record, payload: bytes, position: Position) -> None:
        # A report that waited may be older than the records that were applied before it.
        late = record._replace(now=max(record.now, self.machine.now))
        replay(self.machine, late, payload, position)
        self._changed.update(self.machine.moved)


def _report_in(payload: bytes) -> list[Any] | None:
    """The plain record of a report: name, time, fields and perhaps decisions. None for another
    record, or if its numbers are not numbers."""
    try:
        record: list[Any] = msgpack.unpackb(payload, strict_map_key=False)
        return record if record[0] == "Reported" and _has_numbers(record[2]) else None
    except (ValueError, TypeError, OverflowError, RecursionError, KeyError, IndexError):
        return None


def _progress_in(payload: bytes) -> dict[str, Any] | None:
    """The fields of a report that changes nothing but the numbers of its trial; else None."""
    record = _report_in(payload)
    if record is None or len(record) > 3:  # a scheduler has decided on it
        return None
    fields: dict[str, Any] = record[2]
    is_more = fields.get("checkpoint", fields) is not None or fields["metrics"].get("done") is True
    return None if is_more else fields


def _has_numbers(fields: Mapping[str, Any]) -> bool:
    return (
        type(fields["metrics"]) is dict
        and type(fields["trial_id"]) is str
        and type(fields["iteration"]) is int
        and all(type(fields[name]) in _NUMBERS for name in _TIMES)
    )


def _may_reach(fields: Mapping[str, Any], stop: Mapping[str, float]) -> bool:
    automatic = {name: fields[name] for name in _TIMES}
    iteration = {"training_iteration": fields["iteration"]}
    return reaches({**automatic, **_EARLY, **fields["metrics"], **iteration}, stop) is not None


# How often the lock is asked whether a process runs the experiment.
_HOLDER_S: Final = 2.0
# The reports of so many seconds give their rate.
_RATE_S: Final = 10.0
# The newest records whose reports are kept when an experiment is read.
_NEWEST: Final = 10_000
AT_ONCE: Final = 50_000


class FollowedRecords:
    """The state of an experiment. One thread at a time calls `look`; who reads the state
    meanwhile holds `lock`.

    `find` reads the experiment, what is in storage to the records given. `clock` returns seconds
    since any fixed start, `now` seconds since 1970. `experiment` is as of the last look.
    `reset_at`: pages with an earlier version must read everything again. `is_dirty`: something
    has changed since the reader of the state has cleared it.
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
        return self.is_live, self.experiment.holder, self.machine.happened[-1:], self.reset_at

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
            self._fault, self.is_dirty = "", True
            self._holder_at = self._loaded_at = self._clock()
            self._rate.clear()
            self.is_live = found.condition(self._now()) is Condition.LIVE
            trials = list(found.machine.trials)
            self.entries.update(found.machine, trials, is_live=self.is_live)
            self._must_load = False

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
        with self.lock:
            folded = self.folding.apply(news)
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
        """Read from the lock whether a process runs it, every 2 s and after the end of a trial."""
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
    """True if it is the same run, and no trial is missing that was there before."""
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
