"""Checks an experiment's tree on this machine, without changing files or taking a lock."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.experiment.doctor import checkpoints, garbage, projected, state
from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.doctor.replayed import ReplayedExperiment
from holdfast.experiment.doctor.tree import Tree, read
from holdfast.experiment.folder.containment import LeadsElsewhere, check_enclosed_trials
from holdfast.experiment.folder.layout import Layout


def examine(
    layout: Layout,
    *,
    in_use: bool = False,
    with_checksums: bool = True,
    is_mirror: bool = False,
) -> Tree:
    """Check everything. `is_mirror`: missing checkpoints may be in storage. Raises OSError."""
    tree = read(layout, in_use=in_use)
    replayed = tree.replayed
    tree.findings += state.judge_objects(layout, replayed)
    if replayed is None:
        return tree
    try:
        check_enclosed_trials(layout, replayed.machine)
    except LeadsElsewhere as error:
        tree.findings.append(_elsewhere(layout, error))
    tree.findings += state.judge_snapshots(tree.snapshots, replayed)
    tree.habits = projected.habits(layout, replayed)
    if not in_use and not replayed.refusal:
        snapshot = state.newest(tree.snapshots, replayed)
        charts = tree.habits.charts is True
        tree.findings += projected.examine(layout, replayed, snapshot, charts=charts)
    _examine_checkpoints(tree, replayed, with_checksums=with_checksums, is_mirror=is_mirror)
    if in_use:
        _drop_outdated(tree)
    else:
        tree.findings += garbage.judge(garbage.here(tree))
        tree.findings += garbage.strangers(tree)
    return tree


def _examine_checkpoints(
    tree: Tree, replayed: ReplayedExperiment, *, with_checksums: bool, is_mirror: bool
) -> None:
    named = checkpoints.named(replayed)
    tree.broken = dict(
        checkpoints.faults(tree.layout, replayed, named, with_checksums=with_checksums)
    )
    tree.looked_at |= {
        "checkpoints": len(named),
        "checkpoint_bytes": sum(checkpoint.record.size_bytes for checkpoint in named),
    }
    for checkpoint in named:
        if checkpoint.folder in tree.broken:
            is_here = (tree.layout.root / checkpoint.folder).is_dir()
            if is_here or not is_mirror:
                tree.findings.append(_lost(checkpoint, tree.broken[checkpoint.folder]))
        elif not checkpoint.record.committed:
            tree.findings.append(_staged(checkpoint))


def _lost(checkpoint: checkpoints.NamedCheckpoint, reason: str) -> Finding:
    return Finding(
        kind="checkpoint-broken",
        severity=Severity.ERROR,
        where=checkpoint.folder,
        what=f"{checkpoint.title} (iteration {checkpoint.record.iteration}) cannot be used: "
        f"{reason}",
        advice="A resumed trial uses the newest complete checkpoint before it. repair removes "
        "this one from the records, or downloads it if storage has it complete",
        remedy=Remedy.REPAIR,
    )


def _staged(checkpoint: checkpoints.NamedCheckpoint) -> Finding:
    return Finding(
        kind="checkpoint-staged",
        severity=Severity.NOTE,
        where=checkpoint.folder,
        what=f"{checkpoint.title} is here but not committed yet: it has no checksums, and a "
        "power cut may destroy it",
        remedy=Remedy.SYNC,
    )


def _elsewhere(layout: Layout, error: LeadsElsewhere) -> Finding:
    return Finding(
        kind="leads-elsewhere",
        severity=Severity.ERROR,
        where=os.path.relpath(error.path, layout.root),
        what=f"{error}",
        advice="Until this is fixed, nothing is resumed, repaired, removed or uploaded",
    )


def _drop_outdated(tree: Tree) -> None:
    """Drop findings about checkpoints that the running experiment has removed meanwhile."""
    replayed = tree.replayed
    latest = read(Layout(Path(tree.layout.root)), in_use=True).replayed
    if replayed is None or latest is None:
        return
    still = {checkpoint.folder for checkpoint in checkpoints.named(latest)}
    tree.findings = [
        finding
        for finding in tree.findings
        if not finding.kind.startswith("checkpoint-")
        or (finding.where in still and finding.kind != "checkpoint-staged")
    ]
