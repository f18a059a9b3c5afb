"""Applies new records to a machine, without the reports that later ones replace. Pure: no I/O.

A thousand reports a second would take 2 % of a core in the machine alone. A report that only
changes the numbers of its trial is skipped if a newer one of the trial follows: the machine is
then as if it had handled both. A few bytes tell most of them, which are decoded only
for a chart. `tests/experiment/page/test_folding.py` compares it with a machine that
has handled every record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.records.journal import BEGINS, replay, unpack
from holdfast.experiment.records.recovery import subject_of
from holdfast.experiment.records.rows import columns_of
from holdfast.results.page.curve import Point, number_or_none
from holdfast.results.page.raw_reports import (
    ID_AT,
    NAME,
    PLAIN,
    REPORT,
    beginning,
    fields_of,
    id_of,
    is_only_progress,
    iteration_at,
)
from holdfast.scheduler.codec import Record
from holdfast.scheduler.events import (
    EndOrdered,
    Exited,
    Raised,
    Recalled,
    Resumed,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.segment import Position
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
_OF_ONE_TRIAL = (
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


class AnotherBegins(Exception):
    """A record that cannot be applied: another run has begun in the folder, or the run has ended
    in a way that the skipped reports may matter for. Read the experiment again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What a batch of records has changed. `reports` counts all reports, also skipped ones.

    `is_more`: some record was more than a report. `is_all`: any trial may have changed.
    """

    changed: frozenset[str]
    reports: int
    is_more: bool
    is_all: bool


class _Waiting:
    """The reports of a trial that may be skipped, in a batch: each begins with `begins` at the
    offset `at`, and its iteration follows. `decoded` is one before them whose row is kept."""

    __slots__ = ("at", "begins", "decoded", "reports", "trial_id")

    def __init__(self, trial_id: str, begins: bytes, at: int) -> None:
        self.trial_id, self.begins, self.at = trial_id, begins, at
        self.reports: list[tuple[bytes, Position]] = []
        self.decoded: tuple[bytes, Position] | None = None

    @property
    def newest(self) -> tuple[bytes, Position] | None:
        return self.reports[-1] if self.reports else self.decoded


class Folding:
    """One machine, and the newest rows of its trials."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.recent = Recent()
        # By the bytes of a trial's id, until the next record of another kind: where its reports
        # wait, None if they may not be skipped.
        self._expected: dict[bytes, _Waiting | None] = {}
        self._waiting: dict[str, _Waiting] = {}
        # The iteration at which all trials end, infinity if none is known; None if a report may
        # reach another bound.
        self._last_iteration = _last_iteration(machine.spec.stop)
        self._changed: set[str] = set()
        self._reports = 0
        self._is_more = self._is_all = False

    def apply(
        self,
        records: Iterable[tuple[bytes, Position]],
        hear: Callable[[bytes], None] = lambda payload: None,
    ) -> Folded:
        """Apply the records; `hear` gets the payload of each.

        Raises AnotherBegins, and UnreadableRecord for one that this version cannot use. The
        records before it have then been applied.
        """
        self._changed, self._reports = set(), 0
        self._is_more = self._is_all = False
        try:
            for record in records:
                payload = record[0]
                if payload.startswith(REPORT):
                    self._on_report(record)
                else:
                    self._on_record(*record)
                hear(payload)
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
        if payload[1 : len(REPORT)] != NAME:
            return
        trial_id = id_of(payload).decode(errors="replace")
        if payload[0] == PLAIN and trial_id in self.machine.trials and is_only_progress(payload):
            self.recent.add_reports(trial_id, [payload])
        elif (fields := fields_of(payload)) and fields["trial_id"] in self.machine.trials:
            self._add(fields)

    def _on_report(self, record: tuple[bytes, Position]) -> None:
        payload = record[0]
        key = id_of(payload)
        waiting = self._expected[key] if key in self._expected else self._expect(key)
        if waiting is None:
            self._on_record(*record)
        elif (
            payload.startswith(waiting.begins, waiting.at)
            and is_only_progress(payload)
            and (self._last_iteration == inf or self._is_early(payload, waiting))
        ):
            waiting.reports.append(record)
        elif self._is_plain(payload, waiting):
            waiting.decoded = record
        else:
            self._on_record(*record)

    def _expect(self, key: bytes) -> _Waiting | None:
        trial_id = key.decode(errors="replace")
        found = None
        if attempt := self._running_attempt(trial_id):
            begins = beginning(attempt)
            found = self._waiting.get(trial_id)
            if found is None or found.begins != begins:
                self._flush(trial_id)
                found = self._waiting[trial_id] = _Waiting(trial_id, begins, ID_AT + len(key))
        self._expected[key] = found
        return found

    def _is_early(self, payload: bytes, waiting: _Waiting) -> bool:
        """Whether the report is before the last iteration."""
        try:
            iteration = iteration_at(payload, waiting.at + len(waiting.begins))
        except (ValueError, IndexError):
            return False
        return self._last_iteration is not None and iteration < self._last_iteration

    def _is_plain(self, payload: bytes, waiting: _Waiting) -> bool:
        """Whether a report only changes the numbers of its trial. If so, its row is kept."""
        fields = fields_of(payload)
        is_plain = (
            fields is not None
            and fields["trial_id"] == waiting.trial_id
            and fields.get("attempt") == self._running_attempt(waiting.trial_id)
            and fields.get("checkpoint", fields) is None
            and fields["metrics"].get("done") is not True
            and not (self.machine.spec.stop and self._reaches_bound(fields))
        )
        if fields is not None and is_plain:
            self._hand_over(waiting)
            self._note(fields)
        return is_plain

    def _running_attempt(self, trial_id: str) -> int:
        """The attempt of a trial whose reports may be skipped, until the next record of another
        kind; 0 if they may not."""
        machine, trial = self.machine, self.machine.trials.get(trial_id)
        is_one = (
            trial is not None
            and trial.status is Status.RUNNING
            and not (trial.is_held or trial.spec.resources.is_elastic)
            and trial_id not in machine.questions
            and not machine.spec.has_stopper
            and machine.expected.is_met
        )
        return trial.attempt if trial is not None and is_one else 0

    def _reaches_bound(self, fields: Mapping[str, Any]) -> bool:
        automatic = {name: fields[name] for name in _TIMES}
        iteration = {"training_iteration": fields["iteration"]}
        row = {**automatic, **_EARLY, **fields["metrics"], **iteration}
        return reaches(row, self.machine.spec.stop) is not None

    def _note(self, fields: Mapping[str, Any]) -> None:
        self._reports += 1
        self._add(fields)

    def _add(self, fields: Mapping[str, Any]) -> None:
        self.recent.add(
            fields["trial_id"],
            fields["iteration"],
            fields["time_total_s"],
            fields["timestamp"],
            fields["metrics"],
        )

    def _on_record(self, payload: bytes, position: Position) -> None:
        record = unpack(payload, position)
        event = record.event
        if isinstance(event, BEGINS):
            raise AnotherBegins
        trial_id = subject_of(event)
        if isinstance(event, _OF_ONE_TRIAL) and payload[0] == PLAIN and trial_id is not None:
            self._flush(trial_id)
        else:
            self._flush_all()
        ending = self.machine.ending
        self._expected.clear()
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
        elif isinstance(event, Reported):
            self._note(
                {
                    "trial_id": trial_id,
                    "iteration": event.iteration,
                    "time_total_s": event.time_total_s,
                    "timestamp": event.timestamp,
                    "metrics": event.metrics,
                }
            )

    def _flush_all(self) -> None:
        self._expected.clear()
        waiting = [(one.newest, one.trial_id) for one in self._waiting.values()]
        known = [(newest[1], trial_id) for newest, trial_id in waiting if newest is not None]
        for _, trial_id in sorted(known):  # the newest is last
            self._flush(trial_id)
        self._waiting.clear()

    def _flush(self, trial_id: str) -> None:
        waiting = self._waiting.pop(trial_id, None)
        if waiting is None or (newest := waiting.newest) is None:
            return
        self._hand_over(waiting)
        payload, position = newest
        self._replay(unpack(payload, position), payload, position)
        self._changed.add(trial_id)

    def _hand_over(self, waiting: _Waiting) -> None:
        """Keep the rows of the reports that have waited."""
        self._reports += len(waiting.reports)
        self.recent.add_reports(waiting.trial_id, [payload for payload, _ in waiting.reports])
        waiting.reports = []

    def _replay(self, record: Record, payload: bytes, position: Position) -> None:
        # A report that waited may be older than the records that were applied before it.
        late = record._replace(now=max(record.now, self.machine.now))
        replay(self.machine, late, payload, position)
        self._changed.update(self.machine.moved)


_TIMES: Final = ("time_this_iter_s", "time_total_s", "timestamp")
# Bounds of these are rare: a report that may reach one is not skipped.
_EARLY: Final = {name: float("inf") for name in ("iterations_since_restore", "time_since_restore")}


def _last_iteration(stop: Mapping[str, float]) -> float | None:
    """The iteration at which all trials end, infinity without one; None if they may end earlier,
    by another metric."""
    bounds = {name: bound for name, bound in stop.items() if not isinstance(bound, bool)}
    if len(bounds) < len(stop) or not bounds.keys() <= {"training_iteration"}:
        return None
    return bounds.get("training_iteration", inf)


# -- the newest rows of running trials, as the journal had them, in bounded memory ----------------

# Rows of one trial, and of all: 40,000 rows of ten metrics take about 30 MB, and not decoded 12.
_OF_ONE: Final = 1_024
_OF_ALL: Final = 40_000
_MOST_METRICS: Final = 200
# The bytes of a longer report are not kept: it may have texts or arrays.
_LARGEST_UNREAD: Final = 1 << 10


class Seen(NamedTuple):
    """A reported row; `metrics` has only its numbers, nested ones as `a/b`."""

    iteration: int
    time_total_s: float
    timestamp: float
    metrics: Mapping[str, float]


class _Rows:
    """Those of one trial: `read` by rising iteration, and then `unread`, which may replace them:
    some of these are the bytes of a report."""

    __slots__ = ("read", "unread")

    def __init__(self) -> None:
        self.read: deque[Seen] = deque()
        self.unread: deque[Seen | bytes] = deque()

    def __len__(self) -> int:
        return len(self.read) + len(self.unread)

    def drop_oldest(self) -> None:
        (self.read or self.unread).popleft()

    def read_all(self) -> None:
        while self.unread:
            row = self.unread.popleft()
            seen = row if isinstance(row, Seen) else _seen(row)
            if seen is None:
                continue
            while self.read and self.read[-1].iteration >= seen.iteration:
                self.read.pop()
            self.read.append(seen)


class Recent:
    """`rows` has the newest of each trial by rising iteration, those of its newest attempt. What
    no chart has asked for is not decoded."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, _Rows] = OrderedDict()
        self._count = 0

    def add(
        self,
        trial_id: str,
        iteration: int,
        time_total_s: float,
        timestamp: float,
        metrics: Mapping[str, Any],
    ) -> None:
        self._add(trial_id, [Seen(iteration, time_total_s, timestamp, numbers(metrics))])

    def add_reports(self, trial_id: str, payloads: Iterable[bytes]) -> None:
        """Add reports as the journal has them."""
        rows = [one if len(one) <= _LARGEST_UNREAD else _seen(one) for one in payloads]
        self._add(trial_id, [row for row in rows if row is not None])

    def _add(self, trial_id: str, newest: Sequence[Seen | bytes]) -> None:
        rows = self._rows.get(trial_id)
        if rows is None:
            rows = self._rows[trial_id] = _Rows()
        else:
            self._rows.move_to_end(trial_id)
        before = len(rows)
        rows.unread.extend(newest)
        while len(rows) > _OF_ONE:
            rows.drop_oldest()
        self._count += len(rows) - before
        while self._count > _OF_ALL:
            _, oldest = self._rows.popitem(last=False)
            self._count -= len(oldest)

    def roll_back(self, trial_id: str, iteration: int) -> None:
        """The trial continues from this iteration."""
        rows = self._read(trial_id)
        before = len(rows)
        while rows and rows[-1].iteration > iteration:
            rows.pop()
        self._count += len(rows) - before

    def points(self, trial_id: str, metrics: Sequence[str], after: int = 0) -> list[Point]:
        """The rows after an iteration, and the last one before them, if it is still there."""
        rows = self._read(trial_id)
        begin = bisect_right(rows, after, key=lambda row: row.iteration)
        return [
            Point(
                row.iteration,
                row.time_total_s,
                row.timestamp,
                tuple([row.metrics.get(name) for name in metrics]),
            )
            for row in islice(rows, max(0, begin - 1), None)
        ]

    def _read(self, trial_id: str) -> deque[Seen]:
        """All rows of a trial, decoded."""
        if (rows := self._rows.get(trial_id)) is None:
            return deque()
        before = len(rows)
        rows.read_all()
        self._count += len(rows) - before
        return rows.read


def _seen(payload: bytes) -> Seen | None:
    fields = fields_of(payload)
    if fields is None:
        return None
    metrics = numbers(fields["metrics"])
    return Seen(fields["iteration"], fields["time_total_s"], fields["timestamp"], metrics)


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    found = {name: value for name, value in metrics.items() if type(value) is float}
    if len(found) < len(metrics):
        is_nested = any(isinstance(value, Mapping) for value in metrics.values())
        flat = columns_of(dict(metrics)) if is_nested else metrics
        known = {name: number_or_none(value) for name, value in flat.items()}
        found = {name: value for name, value in known.items() if value is not None}
    if len(found) > _MOST_METRICS:
        found = dict(list(found.items())[:_MOST_METRICS])
    return found
