"""Finds complete checkpoints, in a trial's folder or in storage, that no record names.

A disk may lose the last records. The newest checkpoint that the others name may have been
superseded and removed since. Later checkpoints have a manifest, which says how far the trial had
come. Before a trial starts from the beginning or from an older checkpoint, it uses one of those.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.records.journal import read_events
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files import threads
from holdfast.syncer.files.tree import read_regular
from holdfast.syncer.journal.journal import Position
from holdfast.trial.events import Reported, Saved
from holdfast.trial.trial import CheckpointRecord, Trial, checkpoint_dirname, checkpoint_number

if TYPE_CHECKING:
    from holdfast.experiment.uploads.waiting import StorageQuestions


@dataclass(frozen=True, slots=True)
class _Reached:
    """The progress of a trial at a checkpoint."""

    iteration: int
    time_total_s: float


def found_again(
    machine: Machine, layout: Layout, lost: Sequence[CheckpointLost], *, begins: int
) -> Iterator[Saved]:
    """For each trial that lost its newest checkpoint, the newest complete one that no record
    names.

    `begins` is the segment of the journal in which the experiment begins. Raises OSError.
    """
    for trial_id in dict.fromkeys(event.trial_id for event in lost):
        trial = machine.trials[trial_id]
        if not trial.status.has_worker or trial.origin is not None:
            continue  # it has not begun, or has ended
        gone = {event.index for event in lost if event.trial_id == trial_id}
        kept = [record for record in trial.checkpoints if record.index not in gone]
        found = newest_unnamed(trial, layout, {record.index for record in kept}, begins)
        if found is not None and found.iteration > max((r.iteration for r in kept), default=0):
            yield Saved(trial_id=trial_id, attempt=trial.attempt, checkpoint=found)


def lacks_newest(trial: Trial) -> bool:
    """True if no record names the trial's newest known checkpoint, or any checkpoint at all."""
    newest = trial.newest_checkpoint
    return newest is None or newest.index + 1 < trial.next_checkpoint


async def newest_beyond(
    trial: Trial,
    layout: Layout,
    storage: StorageQuestions | None,
    fetch: Callable[[CheckpointRecord], Awaitable[str]],
) -> CheckpointRecord | None:
    """The newest complete checkpoint that is newer than all in the records, here or in storage.

    One in storage is downloaded by `fetch`, which returns why that is impossible.
    Raises OSError, and StorageUnavailable if storage does not answer.
    """
    here = await threads.call(
        lambda: newest_unnamed(trial, layout, set(), least=trial.next_checkpoint)
    )
    if storage is None:
        return here
    for found in await storage.find(trial):
        if here is not None and found.index <= here.index:
            break
        # Its files are compared with the manifest only now.
        if not await fetch(found):
            return found
    return here


def found_notice(event: Saved) -> str:
    """The message to the user."""
    record = event.checkpoint
    return (
        f"checkpoint {record.index} of trial {event.trial_id} (iteration {record.iteration}) is "
        f"complete, although no record names it: the trial resumes from it"
    )


def newest_unnamed(
    trial: Trial,
    layout: Layout,
    named: set[int],
    begins: int | None = None,
    *,
    least: int = 0,
) -> CheckpointRecord | None:
    """The newest complete checkpoint from number `least` on that is not among those `named`.

    A manifest, a record or a row must say how far the trial had come with it. Without `begins`, no
    record is read. Raises OSError.
    """
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
    """The progress in its manifest; None if it is damaged or of another run."""
    reached = made.progress
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
    """The manifest, if every byte of the directory matches it. Nothing else proves it complete."""
    try:
        return manifest.verify(directory, deep=True)
    except StorageError:
        return None


def _recorded(trial: Trial, layout: Layout, begins: int) -> dict[int, _Reached]:
    """The progress that the journal recorded for checkpoints that were superseded since."""
    found: dict[int, _Reached] = {}
    for record, _ in read_events(layout.journal, Position(begins)):
        event = record.event
        if isinstance(event, (Reported, Saved)) and event.trial_id == trial.trial_id:
            kept = event.checkpoint
            if kept is not None:
                found[kept.index] = _Reached(kept.iteration, kept.time_total_s)
    return found


def _shown(folder: Path) -> dict[int, _Reached]:
    """The progress that result.json shows, which may be ahead of the journal."""
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
