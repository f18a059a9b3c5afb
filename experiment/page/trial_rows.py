"""Reads the rows of trials for curves: from their files, and the newest that the journal had."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.experiment.folder.layout import PROGRESS, RESULTS
from holdfast.experiment.folder.trial_folder import TrialFolder, read_from
from holdfast.experiment.page.curve import Curve, Point, Wanted, add_lines, add_table
from holdfast.syncer.files.regular import open_regular
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import TuneError
from holdfast.trial.trial import Trial

_READERS: Final = 16
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
    for point in seen:
        curve.add(point)
    curve.cut(trial.iteration)
    return curve


def _read_files(curve: Curve, trial: Trial, folder: TrialFolder) -> None:
    if folder.local is None:
        _read_stored(curve, folder.location)
    else:
        _read_here(curve, folder.local)
        if curve.last < trial.iteration:
            _read_rest(curve, folder.local)


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
        with open_regular(folder / PROGRESS) as file:
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
        with open_regular(folder / RESULTS) as file:
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
