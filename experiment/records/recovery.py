"""Replays an experiment's records into a machine, and checks its checkpoints on the disk."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import (
    BEGINS,
    JournalStart,
    find_beginning,
    find_run,
    replay,
    unpack,
)
from holdfast.experiment.records.snapshots import LastRecord, load_newest_snapshot
from holdfast.experiment.records.view import ExperimentView
from holdfast.scheduler.events import (
    CheckpointLost,
    Event,
    Exited,
    Raised,
    Resumed,
    StopperAnswered,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler, is_memoryless
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.files.tree import MANIFEST_NAME, walk
from holdfast.syncer.journal.journal import Position, read, readable_end
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import Failure, TuneError
from holdfast.trial.trial import CheckpointRecord, Trial


class Fold:
    """A machine, and its position in the journal."""

    def __init__(self, machine: Machine, position: Position, begun_at: float = 0.0) -> None:
        self.machine = machine
        self.position = position
        self.begun_at = begun_at
        self._last_start = 0
        self.last_payload = b""

    @property
    def last(self) -> LastRecord:
        """The newest record, for a snapshot; only after one was read."""
        return LastRecord(
            segment=self.position.segment,
            offset=self.position.offset,
            record_start=self._last_start,
            record_crc32=zlib.crc32(self.last_payload),
        )

    def run(
        self, journal: Path, stop: Position | None
    ) -> Iterator[tuple[Event, float, Trial | None]]:
        """Yield each event, its time and its trial before it; the machine has already handled the
        event.

        Raises UnreadableRecord, OSError.
        """
        trials = self.machine.trials
        for payload, position in read(journal, self.position, stop):
            record = unpack(payload, position)
            event, now, _ = record
            before = trials.get(subject_of(event) or "")
            replay(self.machine, record, payload, position)
            if isinstance(event, (*BEGINS, Resumed)):
                self.begun_at = now
            known = self.position
            self._last_start = known.offset if known.segment == position.segment else 0
            self.last_payload, self.position = payload, position
            yield event, now, before


def subject_of(event: Event) -> str | None:
    """The trial that an event is about."""
    if isinstance(event, Suggested):
        return event.spec.trial_id
    return getattr(event, "trial_id", None)


def failure_of(event: Event, before: Trial, after: Trial) -> Failure:
    """The failure that ended the attempt.

    The machine may already have launched the next attempt; then the trial after the event has no
    error.
    """
    if isinstance(event, (Raised, StopperAnswered)) and event.failure is not None:
        return event.failure
    if after.error is not None:
        return after.error
    cause = event.cause if isinstance(event, Exited) else type(event).__name__
    place = before.place
    return Failure(
        kind="lost",
        type_name="WorkerLost",
        message=f"the worker process {place.pid} {cause}",
        pid=place.pid or None,
        hostname=place.hostname,
        node=place.node,
    )


class NothingToRestore(TuneError, FileNotFoundError):
    """There is no experiment at the path."""


_ANEW = (
    "the first records of the journal are lost, so it begins with the state of a snapshot: a "
    "scheduler, a search algorithm or a stopper with its own state does not see the earlier rows "
    "again and may decide differently"
)


def recover(
    layout: Layout,
    policy: TrialScheduler | None = None,
    *,
    will_continue: bool = False,
    run: int | None = None,
    known: ExperimentView | None = None,
    location: Location | None = None,
) -> ExperimentView:
    """Load the newest snapshot and replay the records after it; replay all records for a policy
    that does not recall its state from a snapshot.

    `will_continue`: the journal will be continued, so it is cut where it is damaged, and a
    snapshot from beyond that point is not used. `run`: the number of the run, from 1, among those
    in this folder; None for the newest. `known` is what an earlier call has returned, for no run:
    its machine is used if the journal that will be continued still ends there. `location` is that
    of the view, by default the tree.

    Raises NothingToRestore, NoSuchRun, JournalUnreadable, and UnreadableRecord for an unusable
    record.
    """
    beginning, next_begins = find_beginning(layout.journal), None
    if beginning is None:
        raise NothingToRestore(f"there is no experiment in {layout.root}: it has no journal")
    if run is not None:
        beginning, next_begins = find_run(layout.journal, run)
    begins = Position(beginning.position.segment)
    within = readable_end(layout.journal, begins) if will_continue else None
    anew = (_ANEW,) if beginning.is_anew and will_continue else ()
    if (
        known is not None
        and (known.begins, known.end) == (begins.segment, within)
        and _continues(known.machine, policy, beginning)
    ):
        return replace(known, notices=(*known.notices, *anew))
    loaded = load_newest_snapshot(layout, within=within, beginning=beginning)
    snapshot = loaded.snapshot
    if snapshot is not None and _continues(snapshot.machine, policy, beginning):
        machine, start = snapshot.machine, snapshot.position
    else:
        machine, start = Machine(policy), begins
    end = start
    for payload, position in read(layout.journal, start):
        if next_begins is not None and position.segment >= next_begins:
            break
        replay(machine, unpack(payload, position), payload, position)
        end = position
    return ExperimentView(
        machine=machine,
        location=location or Location.resolve(layout.root, None, {}),
        layout=layout,
        begins=begins.segment,
        end=end,
        began_at=beginning.began_at,
        notices=(*loaded.skipped, *anew),
        is_followed=next_begins is not None,
    )


def _continues(machine: Machine, policy: TrialScheduler | None, beginning: JournalStart) -> bool:
    """Give the machine the policy. False if the policy has to see the events so far."""
    return policy is None or is_memoryless(policy) or machine.recall(policy, beginning.spec)


def lost_checkpoints(
    machine: Machine, layout: Layout, *, is_remote: bool, also_final: bool
) -> Iterator[CheckpointLost]:
    """Recorded checkpoints that a trial could not resume from, newest first, up to a complete one.

    For a final trial that stays final, those that were not committed. Checkpoints that are missing
    here may be in remote storage, even if the journal does not say so: the download will show. A
    checkpoint that cannot be read now counts as complete, because it may be.
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
                # It may be complete. If not, reading it fails only the trial that resumes from it.
                reason = ""
            if reason:
                yield CheckpointLost(trial_id=trial.trial_id, index=record.index, reason=reason)
            elif not stays:
                break


def changed_checkpoint(directory: Path, record: CheckpointRecord) -> str:
    """The difference from the bytes that were committed; "" for none. Reads every file.

    Raises StorageError or OSError if they cannot be read.
    """
    # `lost_checkpoints` has compared the sizes of a staged one, which has no hashes. One that was
    # staged on a node is here only if it was committed.
    return manifest.changed(directory, committed=record.committed or bool(record.node))


def lost_notice(trial_id: str, index: int, reason: str) -> str:
    """The message about a checkpoint that nothing can be resumed from."""
    return f"checkpoint {index} of trial {trial_id} is lost: {reason}"


def broken(
    trial: Trial, record: CheckpointRecord, layout: Layout, *, same_boot: bool, is_remote: bool
) -> str:
    """The reason why the checkpoint cannot be used; "" if it can. Compares sizes only.

    `is_remote`: files that are missing here may be in storage. Raises StorageError or OSError if
    the checkpoint cannot be checked.
    """
    directory = layout.checkpoint(trial.spec, record)
    if not directory.is_dir():
        return "" if is_remote else f"{directory} is missing"
    was_elsewhere = bool(record.node)  # here are only files that were committed
    if record.committed or was_elsewhere or (directory / MANIFEST_NAME).exists():
        try:
            manifest.verify(directory)
        except (ManifestMismatch, NotStored) as error:
            return "" if is_remote and (record.committed or was_elsewhere) else str(error)
        return ""
    if not same_boot:
        return f"{directory} was not flushed to the disk before the machine went down"
    sizes = [
        os.lstat(found.path).st_size for found in walk(directory, "restore") if not found.is_dir
    ]
    if (len(sizes), sum(sizes)) != (record.files, record.size_bytes):
        return (
            f"{directory} has {len(sizes)} files of {sum(sizes)} bytes, but {record.files} of "
            f"{record.size_bytes} were reported"
        )
    return ""
