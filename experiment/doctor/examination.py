"""Checks an experiment's tree on this machine, without changing files or taking a lock."""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.experiment.callbacks import thread
from holdfast.experiment.doctor import checkpoints, garbage, projected
from holdfast.experiment.doctor.findings import Finding, Remedy, note, problem, warning
from holdfast.experiment.doctor.replayed import ReplayedExperiment, same_json
from holdfast.experiment.doctor.tree import Tree, read
from holdfast.experiment.folder.containment import LeadsElsewhere, check_enclosed_trials
from holdfast.experiment.folder.layout import CALLBACKS, TUNER, Layout
from holdfast.experiment.records.snapshots import LoadedSnapshot, Snapshot
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.scheduler.codec import snapshot as plain_machine


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
    tree.findings += _judge_objects(layout, replayed)
    if replayed is None:
        return tree
    try:
        check_enclosed_trials(layout, replayed.machine)
    except LeadsElsewhere as error:
        tree.findings.append(_elsewhere(layout, error))
    tree.findings += _judge_snapshots(tree.snapshots, replayed)
    snapshot = _newest(tree.snapshots, replayed)
    tree.habits = projected.habits(layout, replayed, snapshot)
    if not in_use and not replayed.refusal:
        charts = tree.habits.charts is True
        tree.findings += projected.examine(layout, replayed, snapshot, charts=charts)
    _examine_checkpoints(
        tree, replayed, with_checksums=with_checksums, is_mirror=is_mirror, in_use=in_use
    )
    if in_use:
        _drop_outdated(tree)
    else:
        tree.findings += garbage.judge(garbage.here(tree))
        tree.findings += garbage.strangers(tree)
    return tree


def _examine_checkpoints(
    tree: Tree,
    replayed: ReplayedExperiment,
    *,
    with_checksums: bool,
    is_mirror: bool,
    in_use: bool,
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
            if not is_mirror and checkpoint.was_on_node:
                tree.findings.append(checkpoints.on_node(checkpoint, in_use=in_use))
            elif is_here or not is_mirror:
                tree.findings.append(_lost(checkpoint, tree.broken[checkpoint.folder]))
        elif not checkpoint.record.committed:
            tree.findings.append(_staged(checkpoint))


def _lost(checkpoint: checkpoints.NamedCheckpoint, reason: str) -> Finding:
    return problem(
        "checkpoint-broken",
        checkpoint.folder,
        f"{checkpoint.title} (iteration {checkpoint.record.iteration}) cannot be used: {reason}",
        advice="A resumed trial uses the newest complete checkpoint before it. repair removes "
        "this one from the records, or downloads it if storage has it complete",
        remedy=Remedy.REPAIR,
    )


def _staged(checkpoint: checkpoints.NamedCheckpoint) -> Finding:
    return note(
        "checkpoint-staged",
        checkpoint.folder,
        f"{checkpoint.title} is here but not committed yet: it has no checksums, and a "
        "power cut may destroy it",
        remedy=Remedy.SYNC,
    )


def _elsewhere(layout: Layout, error: LeadsElsewhere) -> Finding:
    return problem(
        "leads-elsewhere",
        os.path.relpath(error.path, layout.root),
        f"{error}",
        advice="Until this is fixed, nothing is resumed, repaired, removed or uploaded",
    )


def _drop_outdated(tree: Tree) -> None:
    """Drop findings about checkpoints that the running experiment has removed meanwhile."""
    replayed = tree.replayed
    latest = read(tree.layout, in_use=True).replayed
    if replayed is None or latest is None:
        return
    still = {checkpoint.folder for checkpoint in checkpoints.named(latest)}
    tree.findings = [
        finding
        for finding in tree.findings
        if not finding.kind.startswith("checkpoint-")
        or (finding.where in still and finding.kind != "checkpoint-staged")
    ]


def _newest(snapshots: list[LoadedSnapshot], replayed: ReplayedExperiment) -> Snapshot | None:
    """The newest snapshot that was taken at a position of this journal."""
    several = [one.snapshot for one in snapshots if one.snapshot is not None]
    ours = [one for one in several if one.position in replayed.machines]
    return max(ours, key=lambda one: one.position, default=None)


def _judge_snapshots(
    snapshots: list[LoadedSnapshot], replayed: ReplayedExperiment
) -> Iterator[Finding]:
    """Check the snapshots. A bad one does no harm: a restore takes some seconds longer."""
    for one in snapshots:
        fault = one.fault
        if one.snapshot is not None:
            folded = replayed.machines.get(one.snapshot.position)
            if folded is not None and not same_json(folded, plain_machine(one.snapshot.machine)):
                fault = "it differs from the state that the journal gives at its position"
        if fault:
            yield warning(
                "snapshot-unusable",
                one.name,
                f"a restore reads the journal instead: {fault}",
                remedy=Remedy.REPAIR,
            )


def _judge_objects(layout: Layout, replayed: ReplayedExperiment | None) -> Iterator[Finding]:
    """Check tuner.pkl and callbacks.msgpack, which a restore needs unless it is passed their
    content."""
    fault = TunerFile(layout.tuner).fault
    if fault:
        kept = replayed.machine.spec.options.get("objects", ()) if replayed is not None else ()
        needed = ", ".join(["the trainable", "param_space", *kept])
        yield warning(
            "tuner-file",
            TUNER,
            fault,
            advice=f"Pass a restore what the experiment was started with ({needed}); or replace "
            "the file with a copy: remote storage has one next to the journal",
        )
    try:
        thread.read_states(layout.callbacks)
    except (OSError, ValueError, KeyError) as error:
        yield warning(
            "callback-states",
            CALLBACKS,
            f"it cannot be read ({error}): callbacks will start without their saved states",
            advice="Remove the file, or replace it with an older copy",
        )
