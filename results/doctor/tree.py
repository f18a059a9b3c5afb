"""An experiment's tree on this machine as the doctor reads it; restores a lost beginning.

The beginning of a journal is restored from its own bytes, from storage, or from a snapshot: then
the new journal starts with its state (`Recalled`), and the records after it follow. The old bytes
are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import JOURNAL, PROGRESS, RESULTS, Layout
from holdfast.experiment.records.journal import (
    Chapter,
    JournalDamage,
    find_beginning,
    pack,
    read_segments,
    runs_before,
    unpack,
)
from holdfast.experiment.records.journal import chapters as find_chapters
from holdfast.experiment.records.rows import CONFIG, result_row, rows_until
from holdfast.experiment.records.snapshots import (
    BadSnapshot,
    LoadedSnapshot,
    Snapshot,
    check_journal,
    load_snapshots,
    read_snapshot,
    snapshot_names,
)
from holdfast.experiment.uploads.unrecorded_checkpoints import newest_unnamed
from holdfast.results.doctor.findings import Action, Finding, Remedy, note, problem, warning
from holdfast.results.doctor.projected import Habits, ReplayedExperiment, replay_chapter
from holdfast.scheduler.codec import recalled
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.files.durable import make_folder, write_atomic
from holdfast.syncer.files.tree import open_regular, read_regular
from holdfast.syncer.journal.journal import MAGIC, name_aside, read
from holdfast.syncer.journal.segment import (
    check_magic,
    framed,
    read_segment,
    segment_name,
    segments,
)
from holdfast.text.values import size
from holdfast.trial.errors import InvalidTransition, TuneError
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
    """True if another version of holdfast wrote the first record."""
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


@dataclass(slots=True)
class Tree:
    """The contents of one tree.

    `broken` maps the folders of checkpoints that the records name, but that cannot be resumed
    from, to the reason.
    """

    layout: Layout
    chapters: list[Chapter] = field(default_factory=list)
    replayed: ReplayedExperiment | None = None
    snapshots: list[LoadedSnapshot] = field(default_factory=list)
    habits: Habits = field(default_factory=Habits)
    broken: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)

    @property
    def is_damaged(self) -> bool:
        """True if there may be records that cannot be read."""
        is_sealed = all(chapter.damage is None for chapter in self.chapters)
        return self.replayed is None or bool(self.replayed.refusal) or not is_sealed


def tree_at(layout: Layout, *, in_use: bool = False) -> Tree:
    """Read only the journal and the snapshots. Raises OSError."""
    chapters = find_chapters(read_segments(layout.journal))
    tree = Tree(layout=layout, chapters=chapters)
    tree.findings += _judge(chapters, in_use=in_use)
    newest = chapters[-1] if chapters else None
    if newest is None or not newest.begins:
        if not in_use and _has_not_begun(layout):
            tree.findings = [_not_begun()]
        elif rebuilt(layout):
            tree.findings = [_rebuildable(one) for one in tree.findings]
        return tree
    beginning = find_beginning(layout.journal)
    assert beginning is not None
    tree.snapshots = list(load_snapshots(layout, beginning.spec.experiment_id))
    moments = {one.snapshot.position for one in tree.snapshots if one.snapshot is not None}
    replayed = replay_chapter(layout.journal, newest, moments=moments)
    if replayed is None:
        return tree
    tree.replayed = replayed
    rows = sum(len(found) for found in replayed.rows.values())
    trials = len(replayed.machine.trials)
    tree.looked_at |= {"records": replayed.records, "trials": trials, "rows": rows}
    if replayed.refusal:
        tree.findings.append(_refused(replayed))
    return tree


def _refused(replayed: ReplayedExperiment) -> Finding:
    record = f"record {replayed.records + 1}"
    if replayed.is_foreign:
        return _foreign(f"{record} is of another version of holdfast: {replayed.refusal}")
    return problem(
        "journal-impossible",
        JOURNAL,
        f"{record} cannot follow the records before it: {replayed.refusal}",
        advice="This is a bug in holdfast: please report it with the journal. If a snapshot is "
        "left, tune.ExperimentAnalysis can read what was reported before",
    )


def _judge(parts: Sequence[Chapter], *, in_use: bool) -> Iterator[Finding]:
    """Find what is wrong with the journal. `in_use`: its last record may be incomplete."""
    if not any(chapter.begins for chapter in parts):
        yield _unreadable(any(s.is_foreign for chapter in parts for s in chapter.segments))
        return
    for chapter in parts:
        damage = chapter.damage
        if damage is None or (in_use and chapter is parts[-1] and damage.is_torn):
            continue
        yield _damaged(damage, is_newest=chapter is parts[-1])


def _has_not_begun(layout: Layout) -> bool:
    """True if a run ended during its very first write, and nothing shows that there was more."""
    try:
        return find_beginning(layout.journal) is None
    except TuneError:
        return False


def _not_begun() -> Finding:
    return note(
        "journal-empty",
        JOURNAL,
        "it has no record: the run ended before its first one. No trial had begun",
        advice="Start the run again under the same name",
    )


def _unreadable(is_foreign: bool) -> Finding:
    if is_foreign:
        return _foreign("its first record is from another version of holdfast")
    return problem(
        "journal-unreadable",
        JOURNAL,
        "no segment has a readable beginning: the experiment's settings are lost",
        advice="If the experiment was uploaded, doctor repair --storage URI downloads the "
        "damaged segments; otherwise replace the journal with a copy",
    )


def _foreign(what: str) -> Finding:
    return problem("journal-foreign", JOURNAL, what, advice="Use the version that wrote it")


def _rebuildable(finding: Finding) -> Finding:
    return replace(
        finding,
        what="no segment has a readable beginning",
        advice="It can be rebuilt from a snapshot or the other segments",
        remedy=Remedy.REPAIR,
    )


def _damaged(damage: JournalDamage, *, is_newest: bool) -> Finding:
    of_earlier = "" if is_newest else " (of an earlier experiment in this directory)"
    where = f"{JOURNAL}/{damage.at.name}"
    later = f", and {len(damage.later)} segments after it" if damage.later else ""
    if damage.is_torn:
        return warning(
            "journal-torn",
            where,
            f"its last record is cut off at offset {damage.offset}, as after a crash during "
            f"a write: no acknowledged record follows it{of_earlier}",
            advice="If nothing crashed, the file was truncated, and the rest is lost unless "
            "remote storage has a copy",
            remedy=Remedy.REPAIR,
        )
    missing = "a segment before it is missing" if damage.is_gap else "no valid records"
    start = "it" if damage.offset == 0 else f"what follows offset {damage.offset}"
    return problem(
        "journal-gap" if damage.is_gap else "journal-damaged",
        where,
        f"{start} cannot be used: {missing} ({size(damage.size_bytes)}{later}){of_earlier}",
        advice="The records after it are lost, unless remote storage has a copy; repair moves "
        "the bytes aside and keeps the records before them",
        remedy=Remedy.REPAIR,
    )
