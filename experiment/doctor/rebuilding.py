"""Restoring the beginning of a journal: from its own bytes, from a snapshot, or from storage.

From a snapshot, the new journal starts with its state (`Recalled`), and the records after it
follow. The old bytes are kept.

After the snapshot, each trial is taken as far as its checkpoints and rows on the disk go: if the
records are lost, those alone have what was acknowledged since.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor.findings import Action
from holdfast.experiment.folder.layout import JOURNAL, PROGRESS, RESULTS, Layout
from holdfast.experiment.records.event_codec import pack, unpack
from holdfast.experiment.records.journal_start import runs_before
from holdfast.experiment.records.rows import CONFIG, result_row
from holdfast.experiment.records.snapshots import (
    BadSnapshot,
    Snapshot,
    check_journal,
    read_snapshot,
    snapshot_names,
)
from holdfast.experiment.records.unrecorded_files import rows_until
from holdfast.experiment.uploads.unrecorded_checkpoints import newest_unnamed
from holdfast.scheduler.codec import recalled
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.files.durable import make_folder, write_atomic
from holdfast.syncer.files.tree import open_regular, read_regular
from holdfast.syncer.journal.journal import (
    MAGIC,
    name_aside,
    read,
    read_segment,
    segment_name,
    segments,
)
from holdfast.syncer.journal.segment import check_magic, framed
from holdfast.trial.errors import InvalidTransition
from holdfast.trial.trial import CheckpointRecord, Trial, evolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A segment as it should be; `how` names the source."""

    number: int
    data: bytes
    how: str


def rebuilt(layout: Layout, *, is_mirror: bool = False) -> list[Rebuilt]:
    """The segments whose beginning can be reconstructed. Raises OSError.

    `is_mirror`: storage may have the original segments, and reconstructed ones would not fit what
    is published there, so none is reconstructed.
    """
    found = list(_with_magic(layout.journal))
    if found or is_mirror:
        return found
    if any(_is_foreign(layout.journal, number) for number in segments(layout.journal)):
        return []
    made = _restarted(layout)
    return [] if made is None else [made]


def rebuild(layout: Layout, *, is_mirror: bool) -> Iterator[Action]:
    """Write the reconstructed segments; the old ones are renamed. Raises OSError."""
    while made := rebuilt(layout, is_mirror=is_mirror):
        for one in made:
            yield put(layout.journal, one)


def put(journal: Path, made: Rebuilt) -> Action:
    """Replace a segment, after its old bytes are durable under another name."""
    path = journal / segment_name(made.number)
    kept = ""
    if path.exists():
        old = read_regular(path)
        aside = name_aside(path, 0, old)
        if not aside.exists():
            write_atomic(aside, old)
        kept = f"; the old file is kept as {aside.name}"
    make_folder(journal)
    write_atomic(path, made.data)
    return Action(what=f"restored its beginning {made.how}{kept}", where=f"{JOURNAL}/{path.name}")


def _with_magic(journal: Path) -> Iterator[Rebuilt]:
    """Segments in which only the first eight bytes are wrong."""
    for number in segments(journal):
        path = journal / segment_name(number)
        with open_regular(path) as file:
            if check_magic(file.read(len(MAGIC)), path):
                continue
        if any(_is_record(payload) for payload, _ in _first(journal, number, len(MAGIC))):
            data = MAGIC + read_regular(path)[len(MAGIC) :]
            yield Rebuilt(number=number, data=data, how="because its first record is complete")


def _first(journal: Path, number: int, offset: int) -> Iterator[tuple[bytes, int]]:
    for found in read_segment(journal, number, offset):
        yield found
        return


def _is_record(payload: bytes) -> bool:
    try:
        unpack(payload)
    except ValueError:  # also UnreadableRecord
        return False
    return True


def _is_foreign(journal: Path, number: int) -> bool:
    """Whether another version of holdfast wrote the first record."""
    path = journal / segment_name(number)
    with open_regular(path) as file:
        offset = 0 if check_magic(file.read(len(MAGIC)), path) else len(MAGIC)
    return not all(_is_record(payload) for payload, _ in _first(journal, number, offset))


def _restarted(layout: Layout) -> Rebuilt | None:
    """A segment after all others that begins with the state of the newest snapshot.

    None if the newest experiment's beginning is not lost, or if storage has or may have it.
    """
    if layout.mirror_of.exists():
        return None
    name, snapshot = next(_snapshots(layout), ("", None))
    if snapshot is None or any(
        start.spec.experiment_id == snapshot.machine.spec.experiment_id
        or snapshot.position.segment <= start.position.segment
        or snapshot.begun_at < start.began_at
        for start in runs_before(layout.journal, None)
    ):
        return None
    return _restarted_from(layout, snapshot, name)


def _snapshots(layout: Layout) -> Iterator[tuple[str, Snapshot]]:
    """The snapshots that can be read, newest run first, whatever the journal is."""
    for name in snapshot_names(layout.root):
        try:
            snapshot = read_snapshot(layout, name)
        except (OSError, ValueError, KeyError, TypeError):  # also BadSnapshot and UnreadableRecord
            continue
        yield name, snapshot


def _restarted_from(layout: Layout, snapshot: Snapshot, name: str) -> Rebuilt:
    first = pack(recalled(snapshot.machine), snapshot.begun_at)
    try:
        check_journal(layout.journal, snapshot.last)
        tail = _tail(layout.journal, snapshot, first)
        how = f"the {len(tail)} records after it were read and follow"
    except (BadSnapshot, OSError):
        advance(snapshot.machine, layout)
        first, tail = pack(recalled(snapshot.machine), snapshot.begun_at), []
        how = "the records after it are lost, except where complete checkpoints show the progress"
    data = MAGIC + b"".join(map(framed, [first, *tail]))
    number = max(snapshot.position.segment, *segments(layout.journal), 0) + 1
    return Rebuilt(
        number=number,
        data=data,
        how=f"from the state in the snapshot {name}: the records before it are lost; {how}. The "
        f"rows up to there exist only in {RESULTS}, {PROGRESS} and the event files, which "
        "are kept. A scheduler, a search algorithm or a stopper with its own state does not "
        "see these rows again; its earlier decisions are known only as far as the trials "
        "show them",
    )


def _tail(journal: Path, snapshot: Snapshot, first: bytes) -> list[bytes]:
    """The records after the snapshot, as far as they can be read and can follow it."""
    machine, tail = Machine(), list[bytes]()
    machine.replay(unpack(first).event, now=snapshot.begun_at)
    for payload, _ in read(journal, snapshot.position):
        try:
            record = unpack(payload)
            machine.replay(record.event, now=record.now, answers=record.answers)
        except (UnreadableRecord, InvalidTransition):
            break
        tail.append(payload)
    return tail


def advance(machine: Machine, layout: Layout) -> None:
    """Take each trial that had started to its newest whole checkpoint. Raises OSError."""
    for trial in list(machine.trials.values()):
        if not trial.attempt or trial.status.is_final or trial.origin is not None:
            continue
        named = {record.index for record in trial.checkpoints}
        found = newest_unnamed(trial, layout, named)
        if found is not None and found.iteration > trial.iteration:
            machine.trials[trial.trial_id] = _at(trial, found, layout)


def _at(trial: Trial, found: CheckpointRecord, layout: Layout) -> Trial:
    _, rows = rows_until(str(layout.trial(trial.spec) / RESULTS), found.iteration)
    reached = bool(rows) and rows[-1]["training_iteration"] == found.iteration
    return evolve(
        trial,
        iteration=found.iteration,
        row=_metrics(trial, rows[-1]) if reached else trial.row,
        time_total_s=found.time_total_s,
        checkpoints=(*trial.checkpoints, found),
        next_checkpoint=max(trial.next_checkpoint, found.index + 1),
    )


def _metrics(trial: Trial, row: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that the user reported: names that are not ours, or were theirs before."""
    known = trial.row or {}
    ours = {*result_row(evolve(trial, row={})), CONFIG}
    return {name: value for name, value in row.items() if name in known or name not in ours}
