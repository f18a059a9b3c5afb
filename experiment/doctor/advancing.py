"""Taking trials further than a snapshot knows, by the checkpoints and rows that lie on the disk.

Where the records after a snapshot are lost, what was acknowledged since stands nowhere else.
"""

from __future__ import annotations

from typing import Any

from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.records.rows import CONFIG, result_row
from holdfast.experiment.records.unrecorded_files import rows_until
from holdfast.experiment.uploads.unrecorded_checkpoints import newest_unnamed
from holdfast.scheduler.machine import Machine
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.trial import Trial, evolve


def advance(machine: Machine, layout: Layout) -> None:
    """Bring each trial that had begun to its newest whole checkpoint. Raises OSError."""
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
    """What of a row the user has reported: what is not ours, or was theirs before."""
    known = trial.row or {}
    ours = {*result_row(evolve(trial, row={})), CONFIG}
    return {name: value for name, value in row.items() if name in known or name not in ours}
