"""An experiment's tree on this machine, as the doctor reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor.findings import Finding, Remedy, note, problem, warning
from holdfast.experiment.doctor.projected import Habits
from holdfast.experiment.doctor.rebuilding import rebuilt
from holdfast.experiment.doctor.replayed import ReplayedExperiment, replay_chapter
from holdfast.experiment.folder.layout import JOURNAL, Layout
from holdfast.experiment.records.journal_start import find_beginning
from holdfast.experiment.records.segments import Chapter, JournalDamage, read_segments
from holdfast.experiment.records.segments import chapters as find_chapters
from holdfast.experiment.records.snapshots import LoadedSnapshot, load_snapshots
from holdfast.text.values import size
from holdfast.trial.errors import TuneError


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
        """Whether there may be records that cannot be read."""
        is_sealed = all(chapter.damage is None for chapter in self.chapters)
        return self.replayed is None or bool(self.replayed.refusal) or not is_sealed


def read(layout: Layout, *, in_use: bool = False) -> Tree:
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
    """Whether a run ended during its very first write, and nothing shows that there was more."""
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
