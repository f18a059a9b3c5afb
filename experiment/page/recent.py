"""The newest rows of running trials, as the journal had them, in bounded memory. Pure: no I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.experiment.page.curve import Point, number_or_none
from holdfast.experiment.page.raw_reports import fields_of
from holdfast.experiment.records.rows import columns_of

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
