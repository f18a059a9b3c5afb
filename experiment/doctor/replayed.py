"""Replays the journal of each experiment in a directory: its state, and the rows that follow from
it."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.records.event_codec import OutOfPlace
from holdfast.experiment.records.fold import Fold
from holdfast.experiment.records.rows import CONFIG, encode, flatten_row, result_row
from holdfast.experiment.records.segments import Chapter
from holdfast.scheduler.codec import snapshot as plain_machine
from holdfast.scheduler.events import Event, Recalled
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.journal.journal import Position
from holdfast.trial.events import Reported, Started
from holdfast.trial.trial import Trial

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
    """Whether two values are equal as JSON: NaN equals NaN, and keys may have any order."""
    texts = [json.dumps(value, sort_keys=True, default=repr) for value in (one, other)]
    return texts[0] == texts[1]
