"""Checkpoints that lie whole in a trial's folder or in storage, though no record names them.

A disk may lose what the records said last, and the newest checkpoint that they name then was
superseded and removed since. What was committed after it has a manifest, which says how far the
trial had come: before a trial starts from nothing, or from an older one, it resumes from that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.records.event_codec import read_events
from holdfast.experiment.uploads.questions import StorageQuestions
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files import threads
from holdfast.syncer.files.regular import read_regular
from holdfast.syncer.journal.journal import Position
from holdfast.trial.checkpoint import CheckpointRecord, checkpoint_dirname, checkpoint_number
from holdfast.trial.events import Reported, Saved
from holdfast.trial.trial import Trial


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a trial had come with a checkpoint."""

    iteration: int
    time_total_s: float


def found_again(
    machine: Machine, layout: Layout, lost: Sequence[CheckpointLost], *, begins: int
) -> Iterator[Saved]:
    """The newest whole checkpoint of each trial that has lost its newest, if no record names it.

    `begins` is the segment of the journal in which the experiment begins. Raises OSError.
    """
    for trial_id in dict.fromkeys(event.trial_id for event in lost):
        trial = machine.trials[trial_id]
        if not trial.status.has_worker or trial.origin is not None:
            continue  # it has not begun, or has come to its end
        gone = {event.index for event in lost if event.trial_id == trial_id}
        kept = [record for record in trial.checkpoints if record.index not in gone]
        found = newest_unnamed(trial, layout, {record.index for record in kept}, begins)
        if found is not None and found.iteration > max((r.iteration for r in kept), default=0):
            yield Saved(trial_id=trial_id, attempt=trial.attempt, checkpoint=found)


def lacks_newest(trial: Trial) -> bool:
    """Whether no record names the newest checkpoint of a trial, as far as the records know it; or
    any checkpoint at all."""
    newest = trial.newest_checkpoint
    return newest is None or newest.index + 1 < trial.next_checkpoint


async def newest_beyond(
    trial: Trial, layout: Layout, storage: StorageQuestions | None
) -> CheckpointRecord | None:
    """The newest whole checkpoint that is newer than all that the records know of the trial, here
    or in storage; from there it is brought here.

    Raises OSError, and StorageUnavailable where storage does not answer.
    """
    here = await threads.call(
        lambda: newest_unnamed(trial, layout, set(), least=trial.next_checkpoint)
    )
    if storage is None:
        return here
    for found in await storage.find(trial):
        if here is not None and found.index <= here.index:
            break
        # What it has is held against the manifest only now.
        if not await storage.fetch(trial.spec, found):
            return found
    return here


def found_notice(event: Saved) -> str:
    """A message for the user."""
    record = event.checkpoint
    return (
        f"checkpoint {record.index} of trial {event.trial_id} (iteration {record.iteration}) is "
        f"whole, and no record named it any more: the trial resumes from it"
    )


def newest_unnamed(
    trial: Trial,
    layout: Layout,
    named: set[int],
    begins: int | None = None,
    *,
    least: int = 0,
) -> CheckpointRecord | None:
    """The newest whole checkpoint from number `least` on that is not among those `named`, and of
    which its manifest, a record or a row says how far the trial had come with it. Without `begins`
    no record does. Raises OSError."""
    folder = layout.trial(trial.spec)
    told: dict[int, _Reached] | None = None
    for index in sorted(_numbers(folder) - named, reverse=True):
        made = _whole(folder / checkpoint_dirname(index)) if index >= least else None
        if made is None:
            continue
        known = _known(made, trial)
        if known is None:
            if told is None:
                recorded = {} if begins is None else _recorded(trial, layout, begins)
                told = {**_shown(folder), **recorded}
            known = told.get(index)
        if known is not None:
            return CheckpointRecord(
                index=index,
                iteration=known.iteration,
                attempt=trial.attempt,
                files=len(made.files),
                size_bytes=made.total_bytes,
                time_total_s=known.time_total_s,
            )
    return None


def _known(made: Manifest, trial: Trial) -> _Reached | None:
    """What its manifest says, unless that is an earlier version's, or was copied from a trial of
    another run."""
    reached = made.reached
    if reached is None or reached.trial_id != trial.trial_id:
        return None
    return _Reached(reached.iteration, reached.time_total_s)


def _numbers(folder: Path) -> set[int]:
    try:
        found = {checkpoint_number(path.name) for path in folder.iterdir() if path.is_dir()}
    except FileNotFoundError:
        return set()
    return {number for number in found if number is not None}


def _whole(directory: Path) -> Manifest | None:
    """Every byte is held against the manifest: nothing else speaks for it."""
    try:
        return manifest.verify(directory, deep=True)
    except StorageError:
        return None


def _recorded(trial: Trial, layout: Layout, begins: int) -> dict[int, _Reached]:
    """What the journal has said of checkpoints that were superseded since."""
    found: dict[int, _Reached] = {}
    for record, _ in read_events(layout.journal, Position(begins)):
        event = record.event
        if isinstance(event, (Reported, Saved)) and event.trial_id == trial.trial_id:
            kept = event.checkpoint
            if kept is not None:
                found[kept.index] = _Reached(kept.iteration, kept.time_total_s)
    return found


def _shown(folder: Path) -> dict[int, _Reached]:
    """What the rows in result.json say, which may reach further than the journal."""
    found: dict[int, _Reached] = {}
    try:
        lines = read_regular(folder / RESULTS).splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        number = _number_in(row)
        if number is not None:
            iteration, total = row.get("training_iteration"), row.get("time_total_s", 0.0)
            if type(iteration) is int and iteration > 0 and type(total) in (int, float):
                found[number] = _Reached(iteration, float(total) if 0 <= total < 1e12 else 0.0)
    return found


def _number_in(row: Any) -> int | None:
    name = row.get("checkpoint_dir_name") if isinstance(row, dict) else None
    return checkpoint_number(name) if isinstance(name, str) else None
