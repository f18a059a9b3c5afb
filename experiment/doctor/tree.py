"""An experiment's tree on this machine, as the doctor reads it."""

from __future__ import annotations

from dataclasses import field, replace

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor import segments, state
from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.doctor.projected import Habits
from holdfast.experiment.doctor.rebuilding import rebuilt
from holdfast.experiment.doctor.story import FoldedExperiment, tell
from holdfast.experiment.folder.layout import JOURNAL, Layout
from holdfast.experiment.records.journal_start import find_beginning
from holdfast.experiment.records.segments import Chapter, look
from holdfast.experiment.records.segments import chapters as find_chapters


@dataclass(slots=True)
class Tree:
    """What was found of one tree.

    `broken` are the checkpoints that are named and cannot be resumed from, with the reason, by
    folder; `staged` those that are not committed yet.
    """

    layout: Layout
    chapters: list[Chapter]
    story: FoldedExperiment | None
    taken: list[state.SnapshotFile] = field(default_factory=list)
    habits: Habits = field(default_factory=Habits)
    broken: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)

    @property
    def is_damaged(self) -> bool:
        """Whether there may be records that cannot be read."""
        is_sealed = all(chapter.damage is None for chapter in self.chapters)
        return self.story is None or bool(self.story.refusal) or not is_sealed


def read(layout: Layout, *, in_use: bool = False) -> Tree:
    """The journal and the snapshots alone. Raises OSError."""
    chapters = find_chapters(look(layout.journal))
    tree = Tree(layout=layout, chapters=chapters, story=None)
    tree.findings += segments.judge(chapters, in_use=in_use)
    newest = chapters[-1] if chapters else None
    if newest is None or not newest.begins:
        if rebuilt(layout):
            tree.findings = [replace(one, remedy=Remedy.REPAIR) for one in tree.findings]
        return tree
    beginning = find_beginning(layout.journal)
    assert beginning is not None
    tree.taken = state.snapshots(layout, beginning.spec.experiment_id)
    story = tell(layout.journal, newest, moments=state.moments(tree.taken))
    if story is None:
        return tree
    tree.story = story
    rows = sum(len(found) for found in story.rows.values())
    trials = len(story.machine.trials)
    tree.looked_at |= {"records": story.records, "trials": trials, "rows": rows}
    if story.refusal:
        tree.findings.append(_refused(story))
    return tree


def _refused(story: FoldedExperiment) -> Finding:
    if story.is_foreign:
        return Finding(
            kind="journal-foreign",
            severity=Severity.ERROR,
            where=JOURNAL,
            what=f"record {story.records + 1} is of another version of holdfast: {story.refusal}",
            advice="Use the version that wrote it",
        )
    return Finding(
        kind="journal-impossible",
        severity=Severity.ERROR,
        where=JOURNAL,
        what=f"record {story.records + 1} cannot follow those before it: {story.refusal}",
        advice="This is a fault of holdfast: please report it with the journal. What was reported "
        "before can be read with tune.ExperimentAnalysis where a snapshot is left",
    )
