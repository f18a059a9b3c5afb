"""What is wrong with an experiment's tree on this machine: nothing is changed, no lock taken."""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.beginning import find_beginning
from holdfast.experiment.doctor import garbage, kept, projected, segments, state
from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.doctor.projected import Habits
from holdfast.experiment.doctor.rebuilding import rebuilt
from holdfast.experiment.doctor.story import Story, tell
from holdfast.experiment.enclosed import LeadsElsewhere, check_enclosed_trials
from holdfast.experiment.layout import JOURNAL, Layout


@dataclass(slots=True)
class Tree:
    """What was found of one tree.

    `broken` are the checkpoints that are named and cannot be resumed from, with the reason, by
    folder; `staged` those that are not committed yet.
    """

    layout: Layout
    chapters: list[segments.Chapter]
    story: Story | None
    taken: list[state.Taken] = field(default_factory=list)
    habits: Habits = field(default_factory=Habits)
    broken: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)

    @property
    def is_damaged(self) -> bool:
        """Whether there may be records that cannot be read."""
        is_sealed = all(chapter.damage is None for chapter in self.chapters)
        return self.story is None or bool(self.story.refusal) or not is_sealed


def examine(
    layout: Layout,
    *,
    in_use: bool = False,
    with_checksums: bool = True,
    is_mirror: bool = False,
) -> Tree:
    """Look at everything. `is_mirror`: what is not here may lie in storage. Raises OSError."""
    tree = read(layout, in_use=in_use)
    story = tree.story
    tree.findings += state.judge_objects(layout, story)
    if story is None:
        return tree
    try:
        check_enclosed_trials(layout, story.machine)
    except LeadsElsewhere as error:
        tree.findings.append(_elsewhere(layout, error))
    tree.findings += state.judge_snapshots(tree.taken, story)
    tree.habits = projected.habits(layout, story)
    if not in_use and not story.refusal:
        tree.findings += projected.examine(layout, story, charts=tree.habits.charts is True)
    _examine_checkpoints(tree, story, with_checksums=with_checksums, is_mirror=is_mirror)
    if in_use:
        _forgive_what_went_on(tree)
    else:
        tree.findings += garbage.judge(garbage.here(tree))
        tree.findings += garbage.strangers(tree)
    return tree


def read(layout: Layout, *, in_use: bool = False) -> Tree:
    """The journal and the snapshots alone. Raises OSError."""
    chapters = segments.chapters(segments.look(layout.journal))
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


def _examine_checkpoints(
    tree: Tree, story: Story, *, with_checksums: bool, is_mirror: bool
) -> None:
    several = kept.named(story)
    tree.broken = dict(kept.faults(tree.layout, story, several, with_checksums=with_checksums))
    tree.looked_at |= {
        "checkpoints": len(several),
        "checkpoint_bytes": sum(one.record.size_bytes for one in several),
    }
    for one in several:
        if one.folder in tree.broken:
            is_here = (tree.layout.root / one.folder).is_dir()
            if is_here or not is_mirror:
                tree.findings.append(_lost(one, tree.broken[one.folder]))
        elif not one.record.committed:
            tree.findings.append(_staged(one))


def _lost(one: kept.Named, reason: str) -> Finding:
    return Finding(
        kind="checkpoint-broken",
        severity=Severity.ERROR,
        where=one.folder,
        what=f"checkpoint {one.record.index} of trial {one.trial.trial_id} (iteration "
        f"{one.record.iteration}) cannot be used: {reason}",
        advice="A trial that goes on takes the whole one before it; repair drops this one from "
        "the records, or takes it from storage where that has it whole",
        remedy=Remedy.REPAIR,
    )


def _staged(one: kept.Named) -> Finding:
    return Finding(
        kind="checkpoint-staged",
        severity=Severity.NOTE,
        where=one.folder,
        what=f"checkpoint {one.record.index} of trial {one.trial.trial_id} is here, and was not "
        f"committed yet: it has no checksums, and a power cut may still take it",
        remedy=Remedy.SYNC,
    )


def _elsewhere(layout: Layout, error: LeadsElsewhere) -> Finding:
    return Finding(
        kind="leads-elsewhere",
        severity=Severity.ERROR,
        where=os.path.relpath(error.path, layout.root),
        what=f"{error}",
        advice="Until then nothing is continued, repaired, removed or uploaded",
    )


def _refused(story: Story) -> Finding:
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


def _forgive_what_went_on(tree: Tree) -> None:
    """What was removed while we looked is named no more by now."""
    story = tree.story
    latest = read(Layout(Path(tree.layout.root)), in_use=True).story
    if story is None or latest is None:
        return
    still = {one.folder for one in kept.named(latest)}
    tree.findings = [
        finding
        for finding in tree.findings
        if not finding.kind.startswith("checkpoint-")
        or (finding.where in still and finding.kind != "checkpoint-staged")
    ]
