"""The newest rows of running trials, as the journal had them, in bounded memory. Pure: no I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.experiment.page.curve import Point, values_of
from holdfast.experiment.records.rows import columns_of

# Rows of one trial, and of all: 40,000 rows of ten metrics take about 30 MB.
_OF_ONE: Final = 1_024
_OF_ALL: Final = 40_000
_MOST_METRICS: Final = 200
_NUMBERS = (int, float)


class Seen(NamedTuple):
    """A reported row; `metrics` has only its numbers, nested ones as `a/b`."""

    iteration: int
    time_total_s: float
    timestamp: float
    metrics: Mapping[str, float]


class Recent:
    """`rows` has the newest of each trial by rising iteration, those of its newest attempt."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, deque[Seen]] = OrderedDict()
        self._count = 0

    def add(
        self,
        trial_id: str,
        iteration: int,
        time_total_s: float,
        timestamp: float,
        metrics: Mapping[str, Any],
    ) -> None:
        rows = self._rows.get(trial_id)
        if rows is None:
            rows = self._rows[trial_id] = deque()
        else:
            self._rows.move_to_end(trial_id)
        self._cut(rows, iteration - 1)
        rows.append(Seen(iteration, time_total_s, timestamp, numbers(metrics)))
        self._count += 1
        if len(rows) > _OF_ONE:
            rows.popleft()
            self._count -= 1
        while self._count > _OF_ALL:
            _, oldest = self._rows.popitem(last=False)
            self._count -= len(oldest)

    def roll_back(self, trial_id: str, iteration: int) -> None:
        """The trial continues from this iteration."""
        if (rows := self._rows.get(trial_id)) is not None:
            self._cut(rows, iteration)

    def points(self, trial_id: str, metrics: Sequence[str], after: int = 0) -> list[Point]:
        """The rows after an iteration, and the last one before them, if it is still there."""
        rows = self._rows.get(trial_id, ())
        begin = bisect_right(rows, after, key=lambda row: row.iteration)
        return [
            Point(row.iteration, row.time_total_s, row.timestamp, values_of(row.metrics, metrics))
            for row in islice(rows, max(0, begin - 1), None)
        ]

    def _cut(self, rows: deque[Seen], last: int) -> None:
        while rows and rows[-1].iteration > last:
            rows.pop()
            self._count -= 1


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    found = {name: value for name, value in metrics.items() if type(value) in _NUMBERS}
    if len(found) < len(metrics) and any(isinstance(v, Mapping) for v in metrics.values()):
        flat = columns_of(dict(metrics))
        found = {name: value for name, value in flat.items() if type(value) in _NUMBERS}
    if len(found) > _MOST_METRICS:
        found = dict(list(found.items())[:_MOST_METRICS])
    return found
