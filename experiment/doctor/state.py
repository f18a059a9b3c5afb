"""Snapshots, tuner.pkl and the states of callbacks: whether they can be read, and fit the journal.

Nothing of the user's is unpickled: only the frame around the fields is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks import callback_states
from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.doctor.story import FoldedExperiment
from holdfast.experiment.folder.layout import CALLBACKS, TUNER, Layout
from holdfast.experiment.records.snapshots import (
    BadSnapshot,
    Snapshot,
    load_snapshot,
    snapshots_of,
)
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.scheduler.snapshot import snapshot as plain_machine
from holdfast.syncer.journal.journal import Position
from holdfast.trial.errors import UnreadableRecord

UNUSABLE = ".unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """A snapshot's file: what is in it, or why it is of no use."""

    name: str
    snapshot: Snapshot | None = None
    fault: str = ""


def snapshots(layout: Layout, experiment_id: str) -> list[SnapshotFile]:
    """Those of an experiment, and those that do not say whose they are."""
    return [_taken(layout, name) for name in snapshots_of(layout.root, experiment_id)]


def _taken(layout: Layout, name: str) -> SnapshotFile:
    try:
        return SnapshotFile(name=name, snapshot=load_snapshot(layout, name))
    except (BadSnapshot, UnreadableRecord, OSError) as error:
        return SnapshotFile(name=name, fault=str(error))


def moments(taken: list[SnapshotFile]) -> set[Position]:
    """Where in the journal the snapshots were taken."""
    return {one.snapshot.position for one in taken if one.snapshot is not None}


def judge_snapshots(taken: list[SnapshotFile], story: FoldedExperiment) -> Iterator[Finding]:
    """A snapshot is never the truth: one that is no good costs a restore some seconds."""
    for one in taken:
        fault = one.fault
        if one.snapshot is not None:
            folded = story.machines.get(one.snapshot.position)
            if folded is not None and not _same(folded, plain_machine(one.snapshot.machine)):
                fault = "it is not what the journal gives up to the record that it was taken after"
        if fault:
            yield Finding(
                kind="snapshot-unusable",
                severity=Severity.WARNING,
                where=one.name,
                what=f"a restore reads the journal instead: {fault}",
                remedy=Remedy.REPAIR,
            )


def _same(one: object, other: object) -> bool:
    texts = [json.dumps(value, sort_keys=True, default=repr) for value in (one, other)]
    return texts[0] == texts[1]


def judge_objects(layout: Layout, story: FoldedExperiment | None) -> Iterator[Finding]:
    """What a restore takes from tuner.pkl and callbacks.msgpack, if it is not given it anew."""
    fault = TunerFile(layout.tuner).fault
    if fault:
        kept = story.machine.spec.options.get("objects", ()) if story is not None else ()
        needed = ", ".join(["the trainable", "param_space", *kept])
        yield Finding(
            kind="tuner-file",
            severity=Severity.WARNING,
            where=TUNER,
            what=fault,
            advice=f"A restore must be given what the experiment began with ({needed}); or put a "
            f"copy of the file in its place: remote storage has one beside the journal",
        )
    try:
        callback_states.read(layout.callbacks)
    except (OSError, ValueError, KeyError) as error:
        yield Finding(
            kind="callback-states",
            severity=Severity.WARNING,
            where=CALLBACKS,
            what=f"it cannot be read ({error}): callbacks start without their states",
            advice="Remove the file, or put an older copy in its place",
        )
