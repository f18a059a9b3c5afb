"""The rows of trials as columns of numbers, thinned: from their files, here or in storage, and the
newest ones from the journal."""

from __future__ import annotations

import csv
import io
import json
import os
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import PROGRESS, RESULTS
from holdfast.experiment.folder.trial_folder import TrialFolder, read_from
from holdfast.experiment.records.rows import columns_of
from holdfast.results.page.entries import number
from holdfast.trial.errors import TuneError
from holdfast.trial.events import Reported
from holdfast.trial.metrics import lookup
from holdfast.trial.trial import Trial

_ITERATION: Final = "training_iteration"
_TIME: Final = "time_total_s"
_AT: Final = "timestamp"
# While a long file is read, its rows are thinned whenever there are so many times the wanted ones.
_AHEAD: Final = 16
_KEPT: Final = 4
_LARGEST_CELL: Final = 1 << 24
_READERS: Final = 16
_MOST_VALUED: Final = 50
# Of a longer table, the newest part is read.
_MOST_BYTES: Final = 256 << 20
_HEAD_BYTES: Final = 1 << 20
_MOST_STORED_BYTES: Final = 64 << 20
# The rows that progress.csv may lack are few: the projector holds them back for a new column.
_TAIL_BYTES: Final = 8 << 20


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


# -- the newest rows of running trials, as the journal had them, in bounded memory ----------------

# Rows of one trial, and of all: 40,000 rows of ten metrics take about 15 MB.
_OF_ONE: Final = 1_024
_OF_ALL: Final = 40_000
_MOST_METRICS: Final = 200


class _Seen(NamedTuple):
    """A reported row; `names` and `values` are those of its numbers, nested ones as `a/b`."""

    iteration: int
    time_total_s: float
    timestamp: float
    names: tuple[str, ...]
    values: tuple[float, ...]


class Recent:
    """The newest rows of each trial, by rising iteration. Those of the trial that has reported
    least recently go first. What has been rolled back is forgotten."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, deque[_Seen]] = OrderedDict()
        self._count = 0
        # Equal names, once for all rows.
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, report: Reported) -> None:
        trial_id, iteration = report.trial_id, report.iteration
        found = _numbers(report.metrics)
        names = tuple(found)
        names = self._names.setdefault(names, names)
        if len(self._names) > _MOST_METRICS:
            self._names.clear()
        values = tuple(found.values())
        row = _Seen(iteration, report.time_total_s, report.timestamp, names, values)
        rows = self._rows.setdefault(trial_id, deque())
        self._rows.move_to_end(trial_id)
        self._cut(rows, iteration - 1)
        rows.append(row)
        self._count += 1
        if len(rows) > _OF_ONE:
            rows.popleft()
            self._count -= 1
        while self._count > _OF_ALL:
            _, oldest = self._rows.popitem(last=False)
            self._count -= len(oldest)

    def roll_back(self, trial_id: str, iteration: int) -> None:
        """The trial continues from this iteration."""
        self._cut(self._rows.get(trial_id, deque()), iteration)

    def _cut(self, rows: deque[_Seen], iteration: int) -> None:
        while rows and rows[-1].iteration > iteration:
            rows.pop()
            self._count -= 1

    def points(self, trial_id: str, metrics: Sequence[str], after: int = 0) -> list[Point]:
        """The rows after an iteration, and the last one before them, if it is still there."""
        rows = self._rows.get(trial_id, deque())
        begin = bisect_right(rows, after, key=lambda row: row.iteration)
        places: dict[tuple[str, ...], list[int | None]] = {}
        found = []
        for row in islice(rows, max(0, begin - 1), None):
            if (where := places.get(row.names)) is None:
                known = {name: at for at, name in enumerate(row.names)}
                where = places[row.names] = [known.get(name) for name in metrics]
            values = tuple([None if at is None else row.values[at] for at in where])
            found.append(Point(row.iteration, row.time_total_s, row.timestamp, values))
        return found


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    found = {name: value for name, value in metrics.items() if type(value) is float}
    if len(found) < len(metrics):
        is_nested = any(isinstance(value, Mapping) for value in metrics.values())
        flat = columns_of(dict(metrics)) if is_nested else metrics
        known = {name: number_or_none(value) for name, value in flat.items()}
        found = {name: value for name, value in known.items() if value is not None}
    return found if len(found) <= _MOST_METRICS else dict(islice(found.items(), _MOST_METRICS))


# -- reading --------------------------------------------------------------------------------------


def read_curve(
    trial: Trial, folder: Callable[[Trial], TrialFolder], wanted: Wanted, seen: Sequence[Point]
) -> Curve:
    """The rows of a trial up to its newest iteration; those that were `seen` in the journal
    replace those in its files. Reads no file if it needs none. Raises StorageError, OSError."""
    curve = wanted.begin()
    if not seen or seen[0].iteration > wanted.after + 1:
        _read_files(curve, trial, folder(trial))
        if seen and seen[0].iteration > curve.last + 1:
            curve.gap = curve.last
    curve.extend(seen)
    curve.cut(trial.iteration)
    return curve


def _read_files(curve: Curve, trial: Trial, folder: TrialFolder) -> None:
    """Read progress.csv; and result.json if there is none, or on this machine if it is behind."""
    table = _opened(folder, PROGRESS)
    if table is not None:
        with table:
            add_table(curve, _lines(table))
        if folder.local is None or curve.last >= trial.iteration:
            return
    if (rows := _opened(folder, RESULTS)) is not None:
        with rows:
            if folder.local is not None and _size(rows) > _TAIL_BYTES:
                rows.seek(-_TAIL_BYTES, os.SEEK_END)
                rows.readline()
            add_lines(curve, rows)


def _opened(folder: TrialFolder, name: str) -> BinaryIO | None:
    """A file of the trial, in storage at most its first 64 MiB; None if there is none. Raises
    StorageError, OSError."""
    if folder.local is None:
        found = read_from(folder.location, name, 0, _MOST_STORED_BYTES)
        return None if found is None else io.BytesIO(found[1])
    try:
        return folder.opened(name)
    except FileNotFoundError:
        return None


def _size(file: BinaryIO) -> int:
    """The size of the file, which is then at its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _lines(file: BinaryIO) -> Iterator[str]:
    """The lines of a table; of a very long one, the first and the newest."""
    if _size(file) > _MOST_BYTES:
        yield file.readline(_HEAD_BYTES).decode(errors="replace")
        file.seek(-_MOST_BYTES, os.SEEK_END)
        file.readline(_HEAD_BYTES)
    with io.TextIOWrapper(file, "utf-8", "replace", newline="") as text:
        yield from text


class CheckpointValues:
    """The values of a metric in the rows of checkpoints, of which each is read once: a page of a
    running trial asks every other second."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, dict[int, float | None]] = OrderedDict()

    def of(
        self,
        trial: Trial,
        metric: str,
        folder: Callable[[Trial], TrialFolder],
        seen: Callable[[int], Sequence[Point]],
    ) -> Mapping[int, float | None]:
        """By the index of the checkpoint; what cannot be read is left out. `seen` returns the
        newest points after an iteration that the journal had."""
        known = self._known.setdefault(trial.trial_id, {})
        self._known.move_to_end(trial.trial_id)
        if len(self._known) > _MOST_VALUED:
            self._known.popitem(last=False)
        new = [one for one in trial.checkpoints if one.score is None and one.index not in known]
        if not new:
            return known
        after = min(one.iteration for one in new) - 1
        wanted = Wanted(metrics=[metric], after=after, points=max(2, trial.iteration - after))
        with suppress(TuneError, OSError, csv.Error):
            curve = read_curve(trial, folder, wanted, seen(after))
            values = {point.iteration: point.values[0] for point in curve.points}
            found = [one for one in new if one.iteration in values]
            known.update({one.index: values[one.iteration] for one in found})
        return known


def read_curves(
    wanted: Sequence[tuple[Trial, Wanted, Sequence[Point]]],
    folder_of: Callable[[Trial], TrialFolder],
    *,
    is_stored: bool,
) -> Iterator[tuple[Trial, Curve | str]]:
    """The curve of each trial, or why it cannot be read; from storage several at a time."""

    def read(one: tuple[Trial, Wanted, Sequence[Point]]) -> tuple[Trial, Curve | str]:
        trial, asked, seen = one
        try:
            return trial, read_curve(trial, folder_of, asked, seen)
        except (TuneError, OSError, csv.Error) as error:
            return trial, f"its rows cannot be read: {error}"

    if not is_stored or len(wanted) < 2:
        yield from map(read, wanted)
        return
    with ThreadPoolExecutor(_READERS, "holdfast-rows") as pool:
        yield from pool.map(read, wanted)
