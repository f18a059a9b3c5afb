"""Checks that snapshots, tuner.pkl and callback states can be read and fit the journal.

Nothing of the user's is unpickled: only the frame around the fields is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.experiment.callbacks import callback_states
from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.doctor.replayed import ReplayedExperiment, same_json
from holdfast.experiment.folder.layout import CALLBACKS, TUNER, Layout
from holdfast.experiment.records.snapshots import LoadedSnapshot, Snapshot
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.scheduler.snapshot import snapshot as plain_machine

UNUSABLE = ".unusable"


def newest(snapshots: list[LoadedSnapshot], replayed: ReplayedExperiment) -> Snapshot | None:
    """The newest snapshot that was taken at a position of this journal."""
    several = [one.snapshot for one in snapshots if one.snapshot is not None]
    ours = [one for one in several if one.position in replayed.machines]
    return max(ours, key=lambda one: one.position, default=None)


def judge_snapshots(
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
            yield Finding(
                kind="snapshot-unusable",
                severity=Severity.WARNING,
                where=one.name,
                what=f"a restore reads the journal instead: {fault}",
                remedy=Remedy.REPAIR,
            )


def judge_objects(layout: Layout, replayed: ReplayedExperiment | None) -> Iterator[Finding]:
    """Check tuner.pkl and callbacks.msgpack, which a restore needs unless it is passed their
    content."""
    fault = TunerFile(layout.tuner).fault
    if fault:
        kept = replayed.machine.spec.options.get("objects", ()) if replayed is not None else ()
        needed = ", ".join(["the trainable", "param_space", *kept])
        yield Finding(
            kind="tuner-file",
            severity=Severity.WARNING,
            where=TUNER,
            what=fault,
            advice=f"Pass a restore what the experiment was started with ({needed}); or replace "
            "the file with a copy: remote storage has one next to the journal",
        )
    try:
        callback_states.read(layout.callbacks)
    except (OSError, ValueError, KeyError) as error:
        yield Finding(
            kind="callback-states",
            severity=Severity.WARNING,
            where=CALLBACKS,
            what=f"it cannot be read ({error}): callbacks will start without their saved states",
            advice="Remove the file, or replace it with an older copy",
        )
