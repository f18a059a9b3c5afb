"""The rows of a trial as columns of numbers, and their thinning. Pure: no I/O."""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.results.page.values import number
from holdfast.trial.metrics import lookup

_ITERATION: Final = "training_iteration"
_TIME: Final = "time_total_s"
_AT: Final = "timestamp"
# While a long file is read, its rows are thinned whenever there are so many times the wanted ones.
_AHEAD: Final = 16
_KEPT: Final = 4
_LARGEST_CELL: Final = 1 << 24


class Point(NamedTuple):
    """One row: its iteration, its times in seconds, and the values of the wanted metrics."""

    iteration: int
    time_total_s: float
    timestamp: float
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Rows after the iteration `after`, with these metrics, at most `points` of them."""

    metrics: Sequence[str]
    after: int = 0
    points: int = 2_000

    def begin(self) -> Curve:
        return Curve(wanted=self)


@dataclass(slots=True)
class Curve:
    """The points of a trial by rising iteration. A later row of an iteration replaces the one
    before it.

    `gap`: rows may be missing after this iteration, because they are in no file yet.
    """

    wanted: Wanted
    points: list[Point] = field(default_factory=list)
    gap: int | None = None

    @property
    def last(self) -> int:
        return self.points[-1].iteration if self.points else self.wanted.after

    def add(self, point: Point) -> None:
        if point.iteration <= self.wanted.after:
            return
        while self.points and self.points[-1].iteration >= point.iteration:
            self.points.pop()
        self.points.append(point)
        if len(self.points) > _AHEAD * self.wanted.points:
            self.points = thinned(self.points, _KEPT * self.wanted.points)

    def extend(self, newest: Sequence[Point]) -> None:
        """Add points that rise, the first of which replaces all from its iteration on."""
        begin = bisect_right(newest, self.wanted.after, key=lambda point: point.iteration)
        if begin < len(newest):
            self.cut(newest[begin].iteration - 1)
            self.points.extend(islice(newest, begin, None))

    def cut(self, last: int) -> None:
        """Remove the points after the iteration `last`."""
        while self.points and self.points[-1].iteration > last:
            self.points.pop()

    def plain(self) -> dict[str, Any]:
        """The columns of api/e/KEY/rows."""
        shown = thinned(self.points, self.wanted.points)
        columns = zip(*(point.values for point in shown), strict=True)
        names = self.wanted.metrics
        return {
            "from": self.wanted.after + 1,
            "iteration": [point.iteration for point in shown],
            "time_total_s": [number(point.time_total_s) for point in shown],
            "timestamp": [number(point.timestamp) for point in shown],
            "metrics": {
                name: [None if value is None else number(value) for value in values]
                for name, values in zip(names, columns, strict=True)
            }
            if shown
            else {name: [] for name in names},
        }


def thinned(points: list[Point], most: int) -> list[Point]:
    """About `most` of the points: the first, the last, and of each bucket of neighbours the one
    with the least and the greatest value of each metric."""
    if len(points) <= most:
        return points
    metrics = len(points[0].values)
    buckets = max(1, (most - 2) // max(1, 2 * metrics))
    kept = {0, len(points) - 1}
    for bucket in range(buckets):
        begin, end = (at * len(points) // buckets for at in (bucket, bucket + 1))
        kept.add(begin) if not metrics else kept.update(_extremes(points, begin, end, metrics))
    return [points[at] for at in sorted(kept)]


def _extremes(points: Sequence[Point], begin: int, end: int, metrics: int) -> Iterable[int]:
    for at in range(metrics):
        values = [points[row].values[at] for row in range(begin, end)]
        known = [value for value in values if value is not None and value == value]
        if known:
            yield begin + values.index(min(known))
            yield begin + values.index(max(known))


def add_table(curve: Curve, lines: Iterable[str]) -> None:
    """Add the rows of progress.csv. A row that is cut off is left out.

    Raises csv.Error for what is not a table.
    """
    csv.field_size_limit(_LARGEST_CELL)
    reader = csv.reader(lines)
    names = next(reader, [])
    at = {name: index for index, name in enumerate(names)}
    if _ITERATION not in at:
        return
    iteration_at, width = at[_ITERATION], len(names)
    time_at, stamp_at = at.get(_TIME), at.get(_AT)
    wanted = [at.get(name) for name in curve.wanted.metrics]
    for row in reader:
        if len(row) != width or not row[iteration_at].isdecimal():
            continue
        curve.add(
            Point(
                int(row[iteration_at][:15]),
                _cell(row, time_at) or 0.0,
                _cell(row, stamp_at) or 0.0,
                tuple([_cell(row, index) for index in wanted]),
            )
        )


def _cell(row: Sequence[str], index: int | None) -> float | None:
    if index is None:
        return None
    text = row[index]
    try:
        return float(text) if text else None
    except ValueError:
        return None


def add_lines(curve: Curve, lines: Iterable[bytes]) -> None:
    """Add the rows of result.json. Leaves out a line that is cut off or is not a row."""
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if type(row) is dict and type(row.get(_ITERATION)) is int and row[_ITERATION] > curve.last:
            curve.add(point_of(row, row[_ITERATION], curve.wanted.metrics))


def point_of(row: Mapping[str, Any], iteration: int, metrics: Sequence[str]) -> Point:
    return Point(
        iteration,
        number_or_none(row.get(_TIME)) or 0.0,
        number_or_none(row.get(_AT)) or 0.0,
        tuple([number_or_none(lookup(row, name)) for name in metrics]),
    )


def number_or_none(value: Any) -> float | None:
    if type(value) is float:
        return value
    # An int may be larger than any float.
    return float(value) if type(value) is int and value.bit_length() < 1_000 else None
