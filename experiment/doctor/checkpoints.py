"""Compares the checkpoints on this machine with those that the records name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor.findings import Finding, Remedy, note, problem
from holdfast.experiment.doctor.replayed import ReplayedExperiment
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.recovery import broken, changed_checkpoint
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.files.tree import is_ours
from holdfast.trial.trial import CheckpointRecord, Trial, checkpoint_number

_READERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCheckpoint:
    """A checkpoint that the records name; `folder` is its path inside the experiment."""

    trial: Trial
    record: CheckpointRecord

    @property
    def title(self) -> str:
        return f"checkpoint {self.record.index} of trial {self.trial.trial_id}"

    @property
    def folder(self) -> str:
        return f"{self.trial.spec.dirname}/{self.record.dirname}"

    @property
    def was_on_node(self) -> bool:
        """Whether only a node was sure to have it."""
        record = self.record
        return bool(record.node) and (record.stays_here or not record.committed)


def on_node(checkpoint: NamedCheckpoint, *, in_use: bool) -> Finding:
    """A checkpoint that a node had, and that is neither here nor complete in storage. `in_use`: a
    process runs the experiment now."""
    record = checkpoint.record
    if in_use:
        stays = " and stays there (NO_UPLOAD)" if record.stays_here else ", which uploads it"
        return note(
            "checkpoint-on-node",
            checkpoint.folder,
            f"{checkpoint.title} is on node {record.node}{stays}",
        )
    if record.stays_here:
        return note(
            "checkpoint-not-kept",
            checkpoint.folder,
            f"{checkpoint.title} (iteration {record.iteration}) was reported with NO_UPLOAD, and "
            f"is gone with the run on node {record.node}",
        )
    return problem(
        "checkpoint-broken",
        checkpoint.folder,
        f"{checkpoint.title} (iteration {record.iteration}) was lost with the run on node "
        f"{record.node}: it was not in storage yet",
        advice="A resumed trial uses the newest complete checkpoint before it. repair removes "
        "this one from the records",
        remedy=Remedy.REPAIR,
    )


def named(replayed: ReplayedExperiment) -> list[NamedCheckpoint]:
    """Every checkpoint that a restore may start from, in the order of the trials."""
    return [
        NamedCheckpoint(trial=trial, record=record)
        for trial in replayed.machine.trials.values()
        for record in trial.checkpoints
    ]


def faults(
    layout: Layout,
    replayed: ReplayedExperiment,
    wanted: Iterable[NamedCheckpoint],
    *,
    with_checksums: bool,
) -> Mapping[str, str]:
    """The folders that cannot be resumed from, with the reason."""
    same_boot = replayed.machine.boot_id == boot_id()

    def fault(one: NamedCheckpoint) -> str:
        try:
            found = broken(one.trial, one.record, layout, same_boot=same_boot, is_remote=False)
            if not found and with_checksums:
                found = changed_checkpoint(layout.root / one.folder, one.record)
        except (StorageError, OSError) as error:
            found = f"it cannot be read: {error}"
        return _shortly(found, f"{layout.root / one.folder}")

    several = list(wanted)
    with ThreadPoolExecutor(_READERS, "holdfast-doctor") as pool:
        reasons = pool.map(fault, several)
        return {one.folder: why for one, why in zip(several, reasons, strict=True) if why}


def _shortly(text: str, directory: str) -> str:
    """Remove the path, which is shown separately and changes when an experiment is moved."""
    return text.replace(directory, "it").removeprefix("verify it: ")


def unnamed(replayed: ReplayedExperiment, folders: Iterable[str]) -> Iterator[str]:
    """The folders (`<trial>/<name>`) of checkpoints that no record names and no restore may need.

    A restore may need a checkpoint of an unfinished trial that is newer than its records.
    """
    trials = replayed.dirnames
    for folder in folders:
        above, _, name = folder.rpartition("/")
        index, trial = checkpoint_number(name), trials.get(above)
        if index is None or trial is None:
            continue
        if index >= trial.next_checkpoint and not trial.status.is_final:
            continue
        if all(record.index != index for record in trial.checkpoints):
            yield folder


def folders(layout: Layout, replayed: ReplayedExperiment) -> list[str]:
    """Every checkpoint on this machine, in the trials' folders."""
    return [
        f"{dirname}/{path.name}"
        for dirname in replayed.dirnames
        for path in sorted(Path(layout.root, dirname).glob("checkpoint_*/"))
        if not path.is_symlink() and is_ours(path)
    ]
