"""Taking up an experiment where it was: fold the journal, then look what is really there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.event_codec import replay, unpack
from holdfast.experiment.records.journal_start import find_beginning, find_run
from holdfast.experiment.records.snapshots import load_newest_snapshot
from holdfast.runtime.process_control import boot_id
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler, is_memoryless
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError
from holdfast.syncer.files.tree import MANIFEST_NAME, walk
from holdfast.syncer.journal.journal import Position, read, readable_end
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.errors import TuneError
from holdfast.trial.trial import Trial


class NothingToRestore(TuneError):
    """There is no experiment at the path that was given."""


_ANEW = (
    "the first records of the journal were lost, and it begins with the state of a snapshot: a "
    "scheduler, a search algorithm or a stopper with a state of its own does not see the rows "
    "before that again, and may decide otherwise than before"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """An experiment as its journal tells it. `begins` is the segment it starts in, `began_at` when
    (seconds since 1970), `end` where its last record ends that could be read. `is_followed`:
    another experiment has begun in the same folder after it."""

    machine: Machine
    begins: int
    end: Position
    began_at: float
    notices: tuple[str, ...]
    is_followed: bool = False


def recover(
    layout: Layout,
    policy: TrialScheduler | None = None,
    *,
    to_go_on: bool = False,
    run: int | None = None,
) -> Recovered:
    """Fold the newest snapshot and every record after it; all records for a policy with a state.

    `to_go_on`: the journal will be written further, so it is cut where it is damaged, and a
    snapshot of what is behind that place would not fit it. `run`: of the experiments that were
    run in this folder one after another, the one with this number, from 1; None for the newest.

    Raises NothingToRestore, NoSuchRun, JournalUnreadable, and UnreadableRecord for a record that
    is of no use.
    """
    beginning, next_begins = find_beginning(layout.journal), None
    if beginning is None:
        raise NothingToRestore(f"there is no experiment in {layout.root}: it has no journal")
    if run is not None:
        beginning, next_begins = find_run(layout.journal, run)
    begins = Position(beginning.position.segment)
    within = readable_end(layout.journal, begins) if to_go_on else None
    loaded = load_newest_snapshot(layout, within=within, beginning=beginning)
    notices = [str(skipped) for skipped in loaded.skipped]
    if beginning.is_anew and to_go_on:
        notices.append(_ANEW)
    snapshot = loaded.snapshot
    if snapshot is not None and is_memoryless(policy):
        machine, start = snapshot.machine, snapshot.position
    else:
        machine, start = Machine(policy), begins
    end = start
    for payload, position in read(layout.journal, start):
        if next_begins is not None and position.segment >= next_begins:
            break
        replay(machine, unpack(payload, position), payload, position)
        end = position
    return Recovered(
        machine=machine,
        begins=begins.segment,
        end=end,
        began_at=beginning.began_at,
        notices=tuple(notices),
        is_followed=next_begins is not None,
    )


def lost_checkpoints(
    machine: Machine, layout: Layout, *, is_remote: bool, also_final: bool
) -> Iterator[CheckpointLost]:
    """Recorded checkpoints that a trial could not resume from, newest first, up to a whole one.

    Of a final trial that stays so, those that were not committed yet. Those that are missing here
    may lie in remote storage, whether their journal had heard of it or not: fetching them will
    tell. One that cannot be looked at may well be whole, and counts as such.
    """
    same_boot = machine.boot_id == boot_id()
    for trial in machine.trials.values():
        stays = trial.status.is_final and not also_final
        for record in reversed(trial.checkpoints):
            if stays and record.committed:
                continue
            try:
                reason = broken(trial, record, layout, same_boot=same_boot, is_remote=is_remote)
            except (StorageError, OSError):
                # It may well be whole. Where the trial is to resume from it, reading it fails that
                # trial, and no other.
                reason = ""
            if reason:
                yield CheckpointLost(trial_id=trial.trial_id, index=record.index, reason=reason)
            elif not stays:
                break


def changed_checkpoint(directory: Path, record: CheckpointRecord) -> str:
    """Why the bytes are not those that were committed; "" if they are. Reads every file.

    Raises StorageError or OSError where they cannot be read.
    """
    try:
        manifest.verify(directory, deep=True)
    except NotStored as error:
        # One that was staged and never hashed has been held to its sizes by `lost_checkpoints`.
        return str(error) if record.committed or not directory.is_dir() else ""
    except (ManifestMismatch, FileNotFoundError) as error:
        return str(error)
    return ""


def lost_notice(trial_id: str, index: int, reason: str) -> str:
    """What the user is told about a checkpoint that nothing can be resumed from."""
    return f"checkpoint {index} of trial {trial_id} is lost: {reason}"


def broken(
    trial: Trial, record: CheckpointRecord, layout: Layout, *, same_boot: bool, is_remote: bool
) -> str:
    """Why the checkpoint cannot be resumed from; "" if it can. Looks at sizes, reads no file.

    `is_remote`: what is missing here may lie in storage. Raises StorageError or OSError where it
    cannot be looked at.
    """
    directory = layout.checkpoint(trial.spec, record)
    if not directory.is_dir():
        return "" if is_remote else f"{directory} is missing"
    if record.committed or (directory / MANIFEST_NAME).exists():
        try:
            manifest.verify(directory)
        except (ManifestMismatch, NotStored) as error:
            return "" if is_remote and record.committed else str(error)
        return ""
    if not same_boot:
        return f"{directory} was not on the disk yet when the machine went down"
    sizes = [
        os.lstat(found.path).st_size for found in walk(directory, "restore") if not found.is_dir
    ]
    if (len(sizes), sum(sizes)) != (record.files, record.size_bytes):
        return (
            f"{directory} has {len(sizes)} files of {sum(sizes)} bytes, reported were "
            f"{record.files} of {record.size_bytes}"
        )
    return ""
