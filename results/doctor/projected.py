"""Checks that each trial's files agree with the journal; all can be rewritten from it."""

from __future__ import annotations

import csv
import io
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from holdfast.dataclass import dataclass
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
from holdfast.experiment.records.journal import Chapter, OutOfPlace
from holdfast.experiment.records.recovery import Fold
from holdfast.experiment.records.rows import (
    CONFIG,
    encode,
    flatten_row,
    params_text,
    result_row,
    shown_config,
)
from holdfast.experiment.records.snapshots import Snapshot
from holdfast.names import printable
from holdfast.results.doctor.findings import Finding, Remedy, note, warning
from holdfast.scheduler.codec import snapshot as plain_machine
from holdfast.scheduler.events import Event, Recalled
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.files.tree import bytes_below, open_regular
from holdfast.syncer.journal.segment import Position
from holdfast.syncer.stores.store import parse_json, read_small
from holdfast.trial.events import Reported, Started
from holdfast.trial.trial import Status, Trial

# Local time, which another machine writes differently.
_DATE = "date"


class ExpectedRow(NamedTuple):
    """The row that result.json and progress.csv must have for an iteration, as CRC-32s of its
    content."""

    iteration: int
    line: int
    cells: int


@dataclass(slots=True)
class ReplayedExperiment:
    """One experiment after a replay of its records.

    `unknown` has, for each trial, the last iteration whose rows are in no record. `refusal` says
    why the replay ended early; `is_foreign` is true if another version of holdfast wrote the
    record.
    """

    machine: Machine
    rows: dict[str, list[ExpectedRow]] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    machines: dict[Position, Any] = field(default_factory=dict)
    records: int = 0
    refusal: str = ""
    is_foreign: bool = False

    @property
    def dirnames(self) -> dict[str, Trial]:
        """Each trial by its folder."""
        return {trial.spec.dirname: trial for trial in self.machine.trials.values()}


def replay_chapter(
    journal: Path, chapter: Chapter, *, moments: Collection[Position] = ()
) -> ReplayedExperiment | None:
    """Replay one experiment; None if its beginning cannot be read.

    At each position in `moments` the machine is kept as plain data, to compare snapshots with.
    """
    span = chapter.span
    if span is None or not chapter.begins:
        return None
    fold = Fold(Machine(), span[0])
    replayed = ReplayedExperiment(fold.machine)
    try:
        for event, _, before in fold.run(journal, span[1]):
            replayed.records += 1
            _note(replayed, event, before)
            if fold.position in moments:
                replayed.machines[fold.position] = plain_machine(fold.machine)
    except UnreadableRecord as error:
        replayed.refusal, replayed.is_foreign = str(error), not isinstance(error, OutOfPlace)
    return replayed


def _note(replayed: ReplayedExperiment, event: Event, before: Trial | None) -> None:
    """Update the expected rows after an event."""
    match event:
        case Recalled():
            trials = replayed.machine.trials.values()
            replayed.unknown = {trial.trial_id: trial.iteration for trial in trials}
        case Started():
            after = replayed.machine.trials[event.trial_id]
            if after is not before:
                kept = replayed.rows.get(event.trial_id, [])
                replayed.rows[event.trial_id] = [
                    row for row in kept if row.iteration <= after.resumed_from
                ]
                unknown = replayed.unknown.get(event.trial_id, 0)
                replayed.unknown[event.trial_id] = min(unknown, after.resumed_from)
        case Reported():
            after = replayed.machine.trials[event.trial_id]
            if after is not before:
                replayed.rows.setdefault(event.trial_id, []).append(expected_row(after))
        case _:
            return


def expected_row(trial: Trial) -> ExpectedRow:
    """The row of the trial's newest report."""
    row = result_row(trial, with_config=False)
    cells = {
        key: "" if value is None else _csv_text(value) for key, value in flatten_row(row).items()
    }
    return ExpectedRow(
        iteration=trial.iteration,
        line=line_sum(json.loads(encode(row)), has_config=CONFIG in row),
        cells=cells_sum(cells),
    )


def line_sum(row: Mapping[str, Any], *, has_config: bool) -> int:
    """The CRC-32 of a line of result.json, independent of the order of keys.

    The config counts only if it is a metric of the user's.
    """
    dropped = {_DATE} if has_config else {_DATE, CONFIG}
    kept = {key: value for key, value in row.items() if key not in dropped}
    return zlib.crc32(json.dumps(kept, sort_keys=True).encode())


def cells_sum(cells: Mapping[str, str]) -> int:
    """The CRC-32 of a row of progress.csv. An empty cell counts as missing."""
    kept = sorted((key, text) for key, text in cells.items() if text and key != _DATE)
    return zlib.crc32(repr(kept).encode())


def _csv_text(value: Any) -> str:
    """The cell as the csv module writes it and reads it back."""
    if type(value) in (str, int, float, bool):
        return str(value)
    text = io.StringIO()
    csv.writer(text).writerow([value])
    (read_again,) = next(csv.reader(io.StringIO(text.getvalue(), newline="")))
    return read_again


def same_json(one: object, other: object) -> bool:
    """True if two values are equal as JSON: NaN equals NaN, and keys may have any order."""
    texts = [json.dumps(value, sort_keys=True, default=repr) for value in (one, other)]
    return texts[0] == texts[1]


_MOST_BYTES = 1 << 33
# The allowed size of a file: so much for each byte of the journal, plus a constant.
_PER_BYTE, _FREE_BYTES = 20, 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a trial in the journal; those up to iteration `unknown` are in no record.

    `then` is the trial when the newest snapshot was saved (None: its files were not complete
    then); the first `written` rows were in the files.
    """

    known: Sequence[ExpectedRow]
    unknown: int = 0
    written: int = 0
    then: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The settings that the existing files were written with; None if no file shows it."""

    charts: bool | None = None
    config_in_rows: bool | None = None


_R = TypeVar("_R")


class _Wrong(Exception):
    """A file differs from the journal; the message says how."""


class _EndsEarly(Exception):
    """A file lacks only what came after the newest snapshot, as after a kill."""


def habits(layout: Layout, replayed: ReplayedExperiment, snapshot: Snapshot | None) -> Habits:
    """Infer the settings from the files. `snapshot` is the newest one that can be used. Raises
    OSError."""
    charted, configured = list[bool](), list[bool]()
    for trial_id, rows in replayed.rows.items():
        trial = replayed.machine.trials[trial_id]
        folder = layout.trial(trial.spec)
        if not rows or not (folder / RESULTS).exists():
            continue
        has_charts = bool(_event_files(folder))
        # The charts come last, so a run that was cut off may have none yet.
        if has_charts or _rows_of(replayed, trial, snapshot).written:
            charted.append(has_charts)
        with suppress(OSError), open_regular(folder / RESULTS) as file:  # the check reports it
            configured.append(b'"config": {' in file.readline(_MOST_BYTES))
    return Habits(
        charts=any(charted) if charted else None,
        config_in_rows=any(configured) if configured else None,
    )


def check_files(
    layout: Layout, replayed: ReplayedExperiment, snapshot: Snapshot | None, *, charts: bool
) -> Iterator[Finding]:
    """Compare every trial's files with the replay. `snapshot` is the newest snapshot that can be
    used. Raises OSError if a file cannot be read."""
    checks = dict(_CHECKS)
    if charts:
        checks[f"{EVENTS_PREFIX}*"] = _check_charts
    journal_bytes = bytes_below(str(layout.journal))
    for trial in replayed.machine.trials.values():
        folder, rows = layout.trial(trial.spec), _rows_of(replayed, trial, snapshot)
        count = len(rows.known) + rows.unknown
        config_bytes = len(encode(shown_config(trial.config)))  # in each row of result.json
        most = _FREE_BYTES + _PER_BYTE * journal_bytes + 2 * count * config_bytes
        if rows.unknown:  # the journal does not account for them
            most = _MOST_BYTES
        early: list[str] = []
        for name, check in checks.items():
            try:
                _check_size(folder / name, most)
                check(folder, trial, rows)
            except _EndsEarly:
                early.append(name)
            except (_Wrong, ValueError, KeyError, TypeError, csv.Error) as error:
                yield _different(f"{trial.spec.dirname}/{name}", printable(str(error)))
        if early:
            yield _behind(trial, early)


def _rows_of(replayed: ReplayedExperiment, trial: Trial, snapshot: Snapshot | None) -> Rows:
    trial_id = trial.trial_id
    known = replayed.rows.get(trial_id, [])
    then = None
    if snapshot is not None and trial_id not in snapshot.unwritten:
        then = snapshot.machine.trials.get(trial_id)
    if then is None:
        last = 0
    elif then.attempt == trial.attempt:
        last = then.iteration
    else:  # the rows after the checkpoint that it resumed from have been removed
        last = min(then.iteration, trial.resumed_from)
    return Rows(
        known=known,
        unknown=replayed.unknown.get(trial_id, 0),
        written=sum(row.iteration <= last for row in known),
        then=then,
    )


def _check_size(path: Path, most: int) -> None:
    """Do not read a file that is far longer than the journal explains: it may be endless."""
    size = os.lstat(path).st_size if os.path.lexists(path) else 0
    if size > most:
        raise _Wrong(f"it has {size:,} bytes, more than the journal explains")


def _behind(trial: Trial, names: Sequence[str]) -> Finding:
    files = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return note(
        "rows-behind",
        trial.spec.dirname,
        f"{files}: the end is missing, as after a kill. The journal has it, up to iteration "
        f"{trial.iteration}",
        advice="A restore writes the rest, too",
        remedy=Remedy.REPAIR,
    )


def _different(where: str, what: str) -> Finding:
    return warning(
        "rows-behind", where, f"it differs from the journal: {what}", remedy=Remedy.REPAIR
    )


def _check_params(folder: Path, trial: Trial, expected: Rows) -> None:
    then = expected.then
    if then is None and not (folder / PARAMS).exists():
        raise _EndsEarly
    shown, found = shown_config(trial.config), _read(folder / PARAMS)
    # The first config is written in place, each later one replaces the file.
    is_cut = then is None and params_text(shown).encode().startswith(found)
    ends_early = is_cut or trial.config != (then or trial.spec).config
    try:
        if same_json(parse_json(found), json.loads(encode(shown))):
            return
    except ValueError:
        if not ends_early:
            raise
    raise _EndsEarly if ends_early else _Wrong("different parameters")


def _check_results(folder: Path, _: Trial, expected: Rows) -> None:
    if _is_not_begun(folder / RESULTS, expected):
        return
    *lines, rest = _read(folder / RESULTS).split(b"\n")
    rows = [parse_json(line) for line in lines]
    if not all(isinstance(row, dict) for row in rows):
        raise _Wrong("a line is not a row")
    rows = _judged(rows, [row.get("training_iteration") for row in rows], expected)
    for row, known in zip(rows, expected.known, strict=False):
        if known.line not in (line_sum(row, has_config=h) for h in (False, True)):
            raise _Wrong(f"the row of iteration {known.iteration} has different values")
    _check_end(rows, expected, is_cut=bool(rest))


def _check_progress(folder: Path, _: Trial, expected: Rows) -> None:
    if _is_not_begun(folder / PROGRESS, expected):
        return
    csv.field_size_limit(1 << 30)
    text = _read(folder / PROGRESS).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    is_cut = bool(text) and not text.endswith("\n")
    if is_cut:
        del rows[-1:]
    if any(None in row or None in row.values() for row in rows):
        raise _Wrong("a row has more or fewer cells than there are columns")
    rows = _judged(rows, [int(row["training_iteration"]) for row in rows], expected)
    for row, known in zip(rows, expected.known, strict=False):
        if cells_sum(row) != known.cells:
            raise _Wrong(f"the row of iteration {known.iteration} has different values")
    _check_end(rows, expected, is_cut=is_cut)


def _check_errors(folder: Path, trial: Trial, expected: Rows) -> None:
    if trial.status is not Status.ERROR or trial.error is None:
        return
    had_failed = expected.then is not None and expected.then.status is Status.ERROR
    written = _read(folder / ERROR) if had_failed or (folder / ERROR).exists() else b""
    if trial.error.headline.encode() not in written:
        if had_failed:
            raise _Wrong("it lacks the error that ended the trial")
        raise _EndsEarly


def _check_charts(folder: Path, _: Trial, expected: Rows) -> None:
    steps: list[int] = []
    for path in _event_files(folder):
        steps += tensorboard.charted_steps(read_small(path, _MOST_BYTES))
    _check_end(_judged(steps, steps, expected), expected)


def _event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{EVENTS_PREFIX}*{EVENTS_SUFFIX}"))


def _read(path: Path) -> bytes:
    try:
        return read_small(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise _Wrong("it is missing") from None
    except OSError as error:
        raise _Wrong(error.strerror or str(error)) from None


def _is_not_begun(path: Path, expected: Rows) -> bool:
    """True if a file is rightly missing. Raises _EndsEarly if it was still to be written."""
    if expected.written or path.exists():
        return False
    if expected.known:
        raise _EndsEarly
    return True


def _judged(rows: Sequence[_R], iterations: Sequence[object], expected: Rows) -> list[_R]:
    """The rows that the journal has as well: the first ones, at least those that were written.
    Raises _Wrong for other iterations."""
    found = [at for at in iterations if type(at) is not int or at > expected.unknown]
    wanted = [row.iteration for row in expected.known]
    if len(found) < expected.written or found != wanted[: len(found)]:
        raise _Wrong(f"it has {_span(found)}, but the journal has {_span(wanted)}")
    return list(rows[len(rows) - len(found) :])


def _check_end(rows: Sequence[object], expected: Rows, *, is_cut: bool = False) -> None:
    """Raises _EndsEarly if rows are missing, and _Wrong if only a part of a line is too much."""
    if len(rows) < len(expected.known):
        raise _EndsEarly
    if is_cut:
        raise _Wrong("its last line is cut off")


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
