"""Checks that each trial's files agree with the journal; all can be rewritten from it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.doctor.story import ExpectedRow, FoldedExperiment, cells_sum, line_sum
from holdfast.experiment.folder.layout import (
    ERROR,
    EVENTS_PREFIX,
    EVENTS_SUFFIX,
    PARAMS,
    PROGRESS,
    RESULTS,
    Layout,
)
from holdfast.experiment.projector import tensorboard
from holdfast.experiment.records.rows import encode, shown_config
from holdfast.names import printable
from holdfast.syncer.files.regular import open_regular
from holdfast.syncer.files.tree import bytes_below
from holdfast.syncer.stores.plain_files import parse_json, read_small
from holdfast.trial.trial import Status, Trial

_MOST_BYTES = 1 << 33
# The allowed size of a file: so much for each byte of the journal, plus a constant.
_PER_BYTE, _FREE_BYTES = 20, 64 << 20


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a trial in the journal; those up to iteration `unknown` are in no record."""

    known: Sequence[ExpectedRow]
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The settings that the existing files were written with; None if no file shows it."""

    charts: bool | None = None
    config_in_rows: bool | None = None


_R = TypeVar("_R")


class _Wrong(Exception):
    """A file differs from the journal; the message says how."""


def habits(layout: Layout, story: FoldedExperiment) -> Habits:
    """Infer the settings from the files. Raises OSError."""
    charted, configured = list[bool](), list[bool]()
    for trial_id, rows in story.rows.items():
        folder = layout.trial(story.machine.trials[trial_id].spec)
        if not rows or not (folder / RESULTS).exists():
            continue
        charted.append(bool(_event_files(folder)))
        with suppress(OSError), open_regular(folder / RESULTS) as file:  # the check reports it
            configured.append(b'"config": {' in file.readline(_MOST_BYTES))
    return Habits(
        charts=any(charted) if charted else None,
        config_in_rows=any(configured) if configured else None,
    )


def examine(layout: Layout, story: FoldedExperiment, *, charts: bool) -> Iterator[Finding]:
    """Compare every trial's files with the replay. Raises OSError if one cannot be read."""
    checks = dict(_CHECKS)
    if charts and tensorboard.available():
        checks[f"{EVENTS_PREFIX}*"] = _check_charts
    journal_bytes = bytes_below(str(layout.journal))
    for trial in story.machine.trials.values():
        folder, rows = layout.trial(trial.spec), _rows_of(story, trial)
        count = len(rows.known) + rows.unknown
        most = _FREE_BYTES + _PER_BYTE * journal_bytes + 2 * count * _config_bytes(trial)
        if rows.unknown:  # the journal does not account for them
            most = _MOST_BYTES
        for name, check in checks.items():
            try:
                _check_size(folder / name, most)
                check(folder, trial, rows)
            except (_Wrong, ValueError, KeyError, TypeError, csv.Error) as error:
                yield _behind(f"{trial.spec.dirname}/{name}", printable(str(error)))


def _rows_of(story: FoldedExperiment, trial: Trial) -> Rows:
    trial_id = trial.trial_id
    return Rows(story.rows.get(trial_id, []), story.unknown.get(trial_id, 0))


def _config_bytes(trial: Trial) -> int:
    """The size of the config in each row of result.json."""
    return len(encode(shown_config(trial.config)))


def _check_size(path: Path, most: int) -> None:
    """Do not read a file that is far longer than the journal explains: it may be endless."""
    size = os.lstat(path).st_size if os.path.lexists(path) else 0
    if size > most:
        raise _Wrong(f"it has {size:,} bytes, more than the journal explains")


def _behind(where: str, what: str) -> Finding:
    return Finding(
        kind="rows-behind",
        severity=Severity.WARNING,
        where=where,
        what=f"it differs from the journal: {what}",
        remedy=Remedy.REPAIR,
    )


def _check_params(folder: Path, trial: Trial, _: Rows) -> None:
    shown = json.loads(encode(shown_config(trial.config)))
    if _same(parse_json(_read(folder / PARAMS)), shown):
        return
    raise _Wrong("different parameters")


def _same(one: object, other: object) -> bool:
    """Whether two values are equal; NaN equals NaN here."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _check_results(folder: Path, _: Trial, expected: Rows) -> None:
    if not expected.known and not (folder / RESULTS).exists():
        return
    *lines, rest = _read(folder / RESULTS).split(b"\n")
    if rest:
        raise _Wrong("its last line is cut off")
    rows = [parse_json(line) for line in lines]
    if not all(isinstance(row, dict) for row in rows):
        raise _Wrong("a line is not a row")
    rows = _judged(rows, [row.get("training_iteration") for row in rows], expected)
    for row, known in zip(rows, expected.known, strict=True):
        if known.line not in (line_sum(row, has_config=h) for h in (False, True)):
            raise _Wrong(f"the row of iteration {known.iteration} has different values")


def _check_progress(folder: Path, _: Trial, expected: Rows) -> None:
    if not expected.known and not (folder / PROGRESS).exists():
        return
    csv.field_size_limit(1 << 30)
    text = _read(folder / PROGRESS).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if any(None in row or None in row.values() for row in rows):
        raise _Wrong("a row has more or fewer cells than there are columns")
    rows = _judged(rows, [int(row["training_iteration"]) for row in rows], expected)
    for row, known in zip(rows, expected.known, strict=True):
        if cells_sum(row) != known.cells:
            raise _Wrong(f"the row of iteration {known.iteration} has different values")


def _check_errors(folder: Path, trial: Trial, _: Rows) -> None:
    if trial.status is not Status.ERROR or trial.error is None:
        return
    if trial.error.headline.encode() not in _read(folder / ERROR):
        raise _Wrong("it lacks the error that ended the trial")


def _check_charts(folder: Path, _: Trial, expected: Rows) -> None:
    steps: list[int] = []
    for path in _event_files(folder):
        steps += tensorboard.charted_steps(read_small(path, _MOST_BYTES))
    _judged(steps, steps, expected)


def _event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{EVENTS_PREFIX}*{EVENTS_SUFFIX}"))


def _read(path: Path) -> bytes:
    try:
        return read_small(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise _Wrong("it is missing") from None
    except OSError as error:
        raise _Wrong(error.strerror or str(error)) from None


def _judged(rows: Sequence[_R], iterations: Sequence[object], expected: Rows) -> list[_R]:
    """The rows that the journal has as well. Raises _Wrong if the iterations differ."""
    found = [at for at in iterations if type(at) is not int or at > expected.unknown]
    wanted = [row.iteration for row in expected.known]
    if found != wanted:
        raise _Wrong(f"it has {_span(found)}, but the journal has {_span(wanted)}")
    return list(rows[len(rows) - len(found) :])


def _span(iterations: Sequence[object]) -> str:
    if not iterations:
        return "no iterations"
    if len(iterations) <= 5:
        return f"iterations {', '.join(map(str, iterations))}"
    return f"{len(iterations)} iterations from {iterations[0]} to {iterations[-1]}"


_CHECKS: dict[str, Callable[[Path, Trial, Rows], None]] = {
    PARAMS: _check_params,
    RESULTS: _check_results,
    PROGRESS: _check_progress,
    ERROR: _check_errors,
}
