"""Checks an experiment's tree on this machine, without changing files or taking a lock: its
snapshots, objects, checkpoints, and files that nothing needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks import thread
from holdfast.experiment.folder.contents import LeadsElsewhere, check_enclosed_trials
from holdfast.experiment.folder.layout import (
    CALLBACKS,
    CHECKPOINT_PREFIX,
    JOURNAL,
    PARAMS,
    STAGING,
    TUNER,
    Layout,
)
from holdfast.experiment.records.recovery import broken, changed_checkpoint
from holdfast.experiment.records.snapshots import LoadedSnapshot, Snapshot
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.results.doctor import projected
from holdfast.results.doctor.findings import Finding, Remedy, note, problem, warning
from holdfast.results.doctor.projected import ReplayedExperiment, replay_chapter, same_json
from holdfast.results.doctor.tree import Tree, tree_at
from holdfast.scheduler.codec import snapshot as plain_machine
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import boot_id, is_leftover
from holdfast.syncer.files.tree import bytes_below, is_ours
from holdfast.text.values import size
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
        """True if only a node was sure to have it."""
        record = self.record
        return bool(record.node) and (record.stays_here or not record.committed)


def finding_on_node(checkpoint: NamedCheckpoint, *, in_use: bool) -> Finding:
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
    return unusable(
        checkpoint, f"was lost with the run on node {record.node}: it was not in storage yet"
    )


def unusable(checkpoint: NamedCheckpoint, why: str) -> Finding:
    """A checkpoint that no trial can resume from; `why` is the rest of a sentence about it."""
    return problem(
        "checkpoint-broken",
        checkpoint.folder,
        f"{checkpoint.title} (iteration {checkpoint.record.iteration}) {why}",
        advice="A resumed trial uses the newest complete checkpoint before it. repair removes "
        "this one from the records, or downloads it if storage has it complete",
        remedy=Remedy.REPAIR,
    )


def named_checkpoints(replayed: ReplayedExperiment) -> list[NamedCheckpoint]:
    """Every checkpoint that a restore may start from, in the order of the trials."""
    return [
        NamedCheckpoint(trial=trial, record=record)
        for trial in replayed.machine.trials.values()
        for record in trial.checkpoints
    ]


def checkpoint_faults(
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


def unnamed_folders(replayed: ReplayedExperiment, folders: Iterable[str]) -> Iterator[str]:
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


def checkpoint_folders(layout: Layout, replayed: ReplayedExperiment) -> list[str]:
    """Every checkpoint on this machine, in the trials' folders."""
    return [
        f"{dirname}/{path.name}"
        for dirname in replayed.dirnames
        for path in sorted(Path(layout.root, dirname).glob("checkpoint_*/"))
        if not path.is_symlink() and is_ours(path)
    ]


_LEFTOVER = "left by a process that died while it wrote, copied or removed it"
_UNNAMED = "a checkpoint that no record names: superseded, dropped, or never reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A file or folder that nothing needs; `where` is its path inside the experiment."""

    where: str
    why: str
    kind: str
    size_bytes: int


def garbage_here(tree: Tree) -> list[Garbage]:
    """Everything in the tree on this machine that nothing needs.

    Includes checkpoints only if every record can be read, because an unreadable one may name them.
    Raises OSError.
    """
    layout = tree.layout
    experiments = _experiments(tree)
    folders = {dirname for replayed in experiments for dirname in replayed.dirnames}
    unnamed: list[str] = []
    for replayed in experiments:
        if tree.is_damaged or replayed.refusal:
            continue
        unnamed += unnamed_folders(replayed, checkpoint_folders(layout, replayed))
    found = [
        _garbage(layout, where, "leftover", _LEFTOVER)
        for where in _leftovers(layout, folders)
        if where.rpartition("/")[0] not in unnamed
    ]
    return found + [_garbage(layout, where, "checkpoint-unnamed", _UNNAMED) for where in unnamed]


def garbage_findings(found: Iterable[Garbage]) -> Iterator[Finding]:
    for one in found:
        yield note(one.kind, one.where, f"{one.why} ({size(one.size_bytes)})", remedy=Remedy.GC)


def unknown_folders(tree: Tree) -> Iterator[Finding]:
    """Folders that look like a trial's but belong to no known trial. They are kept."""
    known = trial_folders(tree)
    for name in _folders(tree.layout.root):
        if name not in known and (tree.layout.root / name / PARAMS).is_file():
            yield note(
                "folder-unknown",
                name,
                "it looks like a trial's folder, but no record names it: it is yours, or "
                "its records are lost",
                advice="It is left untouched",
            )


def trial_folders(tree: Tree) -> set[str]:
    """The folders of the trials of all experiments in the directory."""
    return {dirname for replayed in _experiments(tree) for dirname in replayed.dirnames}


def _experiments(tree: Tree) -> list[ReplayedExperiment]:
    """All experiments of the directory; the newest is already read."""
    earlier = [replay_chapter(tree.layout.journal, chapter) for chapter in tree.chapters[:-1]]
    return [replayed for replayed in (*earlier, tree.replayed) if replayed is not None]


def _leftovers(layout: Layout, trial_folders: Iterable[str]) -> Iterator[str]:
    """Incomplete files and half-deleted folders, which have names that only holdfast uses."""
    yield from _named_so(layout.root, "")
    yield from _named_so(layout.journal, JOURNAL)
    for name in sorted(trial_folders):
        folder = layout.root / name
        yield from _named_so(folder, name)
        for below in _folders(folder):
            if below.startswith(CHECKPOINT_PREFIX):
                yield from _named_so(folder / below, f"{name}/{below}")
            elif below == STAGING:
                staged = sorted(os.listdir(folder / below))
                yield from (f"{name}/{below}/{entry}" for entry in staged)


def _named_so(folder: Path, above: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in filter(is_leftover, names):
        yield f"{above}/{name}" if above else name


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _garbage(layout: Layout, where: str, kind: str, why: str) -> Garbage:
    size_bytes = bytes_below(str(layout.root / where))
    return Garbage(where=where, why=why, kind=kind, size_bytes=size_bytes)


def examine(
    layout: Layout,
    *,
    in_use: bool = False,
    with_checksums: bool = True,
    is_mirror: bool = False,
) -> Tree:
    """Check everything. `is_mirror`: missing checkpoints may be in storage. Raises OSError."""
    tree = tree_at(layout, in_use=in_use)
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
        tree.findings += projected.check_files(layout, replayed, snapshot, charts=charts)
    _examine_checkpoints(
        tree, replayed, with_checksums=with_checksums, is_mirror=is_mirror, in_use=in_use
    )
    if in_use:
        _drop_outdated(tree)
    else:
        tree.findings += garbage_findings(garbage_here(tree))
        tree.findings += unknown_folders(tree)
    return tree


def _examine_checkpoints(
    tree: Tree,
    replayed: ReplayedExperiment,
    *,
    with_checksums: bool,
    is_mirror: bool,
    in_use: bool,
) -> None:
    named = named_checkpoints(replayed)
    tree.broken = dict(
        checkpoint_faults(tree.layout, replayed, named, with_checksums=with_checksums)
    )
    tree.looked_at |= {
        "checkpoints": len(named),
        "checkpoint_bytes": sum(checkpoint.record.size_bytes for checkpoint in named),
    }
    for checkpoint in named:
        if checkpoint.folder in tree.broken:
            is_here = (tree.layout.root / checkpoint.folder).is_dir()
            if not is_mirror and checkpoint.was_on_node:
                tree.findings.append(finding_on_node(checkpoint, in_use=in_use))
            elif is_here or not is_mirror:
                reason = tree.broken[checkpoint.folder]
                tree.findings.append(unusable(checkpoint, f"cannot be used: {reason}"))
        elif not checkpoint.record.committed:
            tree.findings.append(_staged(checkpoint))


def _staged(checkpoint: NamedCheckpoint) -> Finding:
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
    latest = tree_at(tree.layout, in_use=True).replayed
    if replayed is None or latest is None:
        return
    still = {checkpoint.folder for checkpoint in named_checkpoints(latest)}
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
