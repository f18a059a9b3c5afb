"""Reads the rows of trials for curves: from their files, and the newest that the journal had."""

from __future__ import annotations

import csv
import io
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.experiment.folder.layout import PROGRESS, RESULTS
from holdfast.experiment.folder.trial_folder import TrialFolder, read_from
from holdfast.experiment.page.curve import Curve, Point, Wanted, add_lines, add_table
from holdfast.syncer.files.inside import open_inside
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import TuneError
from holdfast.trial.trial import Trial

_READERS: Final = 16
_MOST_VALUED: Final = 50
# Of a longer table, the newest part is read.
_MOST_BYTES: Final = 256 << 20
_HEAD_BYTES: Final = 1 << 20
_MOST_STORED_BYTES: Final = 64 << 20
# The rows that progress.csv may lack are few: the projector holds them back for a new column.
_TAIL_BYTES: Final = 8 << 20


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
    if folder.local is None:
        _read_stored(curve, folder.location)
    else:
        _read_here(curve, folder.local)
        if curve.last < trial.iteration:
            _read_rest(curve, folder.local)


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


def _read_here(curve: Curve, folder: Path) -> None:
    try:
        with open_inside(folder.parent, f"{folder.name}/{PROGRESS}") as file:
            add_table(curve, _lines(file))
    except FileNotFoundError:
        pass


def _lines(file: BinaryIO) -> Iterator[str]:
    """The lines of a table; of a very long one, the first and the newest."""
    size = os.fstat(file.fileno()).st_size
    if size > _MOST_BYTES:
        yield file.readline(_HEAD_BYTES).decode(errors="replace")
        file.seek(size - _MOST_BYTES)
        file.readline(_HEAD_BYTES)
    with io.TextIOWrapper(file, "utf-8", "replace", newline="") as text:
        yield from text


def _read_rest(curve: Curve, folder: Path) -> None:
    """Rows that progress.csv lacks so far, from the end of result.json."""
    try:
        with open_inside(folder.parent, f"{folder.name}/{RESULTS}") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _TAIL_BYTES:
                file.seek(size - _TAIL_BYTES)
                file.readline()
            add_lines(curve, file)
    except FileNotFoundError:
        pass


def _read_stored(curve: Curve, location: Location) -> None:
    found = read_from(location, PROGRESS, 0, _MOST_STORED_BYTES)
    if found is not None:
        text = found[1].decode(errors="replace")
        add_table(curve, io.StringIO(text, newline=""))
        return
    found = read_from(location, RESULTS, 0, _MOST_STORED_BYTES)
    if found is not None:
        add_lines(curve, found[1].splitlines())
