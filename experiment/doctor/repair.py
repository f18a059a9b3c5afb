"""`holdfast doctor repair`: repair what the journal or storage allows, and report the rest.

Each step leaves a state from which the next repair or a restore can continue. So a crash in the
middle of a step is harmless, and a second repair finds nothing to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.experiment.doctor import checkpoints, examination, storage
from holdfast.experiment.doctor.findings import Action, DoctorReport, Remedy
from holdfast.experiment.doctor.rebuilding import Rebuilt, put, rebuild
from holdfast.experiment.doctor.storage import StorageTree
from holdfast.experiment.doctor.target import DoctorTarget
from holdfast.experiment.doctor.tree import Tree, read
from holdfast.experiment.doctor.verify import Depth, verify
from holdfast.experiment.folder.containment import check_enclosed_trials
from holdfast.experiment.folder.layout import JOURNAL, Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell_command import holdfast_command
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.event_codec import pack
from holdfast.experiment.records.opened import locked
from holdfast.experiment.records.segments import Chapter, read_segments
from holdfast.experiment.records.wall_clock import wall_time
from holdfast.scheduler.events import CheckpointLost
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import TEMPORARY, fsync_dir, remove_tree, unique
from holdfast.syncer.files.tree import read_regular
from holdfast.syncer.journal.journal import Journal, cut_off, segment_name, segments
from holdfast.syncer.journal.stretches import Stretch, stretch_of
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import Store, check_key, for_each
from holdfast.trial.errors import TuneError

_AT_ONCE = 16
# The end of the name of a snapshot that is kept, but not read.
_UNUSABLE = ".unusable"


class NothingHere(TuneError):
    """The command needs the experiment's directory on this machine, and there is none."""

    def __init__(self, target: DoctorTarget, command: str) -> None:
        super().__init__(
            f"{command} needs the directory in which the experiment ran, and this machine has "
            f"none for {target.shown} (RAY_AIR_LOCAL_CACHE_DIR names the folder of these "
            f"directories). A restore creates one: {holdfast_command('resume', target.shown)}"
        )


def repair(
    target: DoctorTarget,
    settings: Settings,
    *,
    depth: Depth = Depth.CHECKSUMS,
) -> DoctorReport:
    """Repair the tree on this machine; the report lists what is still wrong.

    Raises Locked while a process runs the experiment, NothingHere, OSError, StorageError.
    """
    if target.layout is None:
        raise NothingHere(target, "repair")
    began = time.monotonic()
    with locked(target.layout):
        actions = tuple(_mend(target, target.layout, settings, depth))
    after = verify(target, depth=depth)
    return replace(after, actions=actions, seconds=time.monotonic() - began)


def _mend(
    target: DoctorTarget, layout: Layout, settings: Settings, depth: Depth
) -> Iterator[Action]:
    # Before any change: storage may not answer.
    stored = None if target.remote is None else storage.gather(target.remote, target.layout)
    if target.remote is not None and stored is not None:
        yield from bring_segments(target.remote, layout, stored)
    yield from rebuild(layout, is_mirror=bool(target.kept_in))
    before = read(layout)
    if before.replayed is None:
        return  # without a beginning no record has a meaning: leave everything as it is
    check_enclosed_trials(layout, before.replayed.machine)
    yield from seal(layout.journal, before.chapters)
    tree = examination.examine(
        layout,
        with_checksums=depth is not Depth.QUICK,
        is_mirror=target.remote is not None or bool(target.kept_in),
    )
    replayed = tree.replayed
    if replayed is None or replayed.refusal:
        return
    yield from _mend_checkpoints(target, tree, stored)
    yield from _put_snapshots_aside(tree)
    yield from _write_files(tree, settings)


def _mend_checkpoints(
    target: DoctorTarget, tree: Tree, stored: StorageTree | None
) -> Iterator[Action]:
    """Take broken checkpoints from storage, or drop them from the records, as a restore does."""
    assert tree.replayed is not None
    lost: list[CheckpointLost] = []
    for checkpoint in checkpoints.named(tree.replayed):
        reason = tree.broken.get(checkpoint.folder)
        if reason is None:
            continue
        is_here = (tree.layout.root / checkpoint.folder).is_dir()
        if target.remote is None or stored is None or stored.fault(checkpoint.folder):
            if is_here or not target.kept_in:
                lost.append(_lost(checkpoint, reason))
        elif is_here:
            try:
                bring_checkpoint(target.remote, tree.layout, checkpoint.folder)
            except StorageError as error:
                lost.append(_lost(checkpoint, f"broken here, and in storage: {error}"))
            else:
                what = "downloaded from storage, which has it complete"
                yield Action(what=what, where=checkpoint.folder)
    yield from _drop(tree, lost)


def _lost(checkpoint: checkpoints.NamedCheckpoint, reason: str) -> CheckpointLost:
    return CheckpointLost(
        trial_id=checkpoint.trial.trial_id, index=checkpoint.record.index, reason=reason
    )


def _drop(tree: Tree, lost: list[CheckpointLost]) -> Iterator[Action]:
    if not lost:
        return
    begins = tree.chapters[-1].segments[0].number
    journal = Journal(tree.layout.journal, begins=begins)
    try:
        journal.append([pack(event, wall_time()) for event in lost])
    finally:
        journal.close()
    trials = {} if tree.replayed is None else tree.replayed.machine.trials
    for event in lost:
        yield Action(
            what=f"checkpoint {event.index} dropped from the records: {event.reason}",
            where=trials[event.trial_id].spec.dirname,
        )


def _put_snapshots_aside(tree: Tree) -> Iterator[Action]:
    """Keep them under another name: one may have what a damaged journal lost."""
    for finding in tree.findings:
        if finding.kind == "snapshot-unusable":
            path = tree.layout.root / finding.where
            os.replace(path, path.with_name(f"{path.name}{_UNUSABLE}"))
            fsync_dir(tree.layout.root)
            yield Action(what=f"renamed to {path.name}{_UNUSABLE}", where=finding.where)


def _write_files(tree: Tree, settings: Settings) -> Iterator[Action]:
    """Write all trials' files and a snapshot, as the projector does after a power cut."""
    behind = [f for f in tree.findings if f.kind == "rows-behind" and f.remedy is Remedy.REPAIR]
    if not behind and not any(f.kind == "snapshot-unusable" for f in tree.findings):
        return
    charts, config = tree.habits.charts, tree.habits.config_in_rows
    projector = Projector(
        tree.layout,
        ProjectorSettings(
            tensorboard=settings.tensorboard if charts is None else charts,
            config_in_rows=settings.config_in_rows if config is None else config,
        ),
        boot="",  # it is unknown in which boot of the system these files were written
    )
    projector.catch_up()
    projector.snapshot()
    for finding in behind:
        if projector.trouble is None:
            yield Action(what="rewritten from the journal", where=finding.where)


def bring_checkpoint(remote: Location, layout: Layout, folder: str) -> None:
    """Download a checkpoint, verify every byte, and replace the one on this machine.

    Raises StorageError, and then leaves the one on this machine.
    """
    target = layout.root / folder
    partial = target.with_name(f"{TEMPORARY}{unique()}")
    try:
        partial.mkdir(parents=True)
        with_store(remote.child(folder), lambda store: _download(store, partial))
        known = manifest.verify(partial, deep=True)
        for name in known.empty_folders:
            (partial / check_key(name)).mkdir(parents=True, exist_ok=True)
        manifest.write(partial, progress=known.progress)
        remove_tree(target)
        os.rename(partial, target)
        fsync_dir(target.parent)
    finally:
        remove_tree(partial)


async def _download(store: Store, target: Path) -> None:
    async def get(key: str) -> None:
        path = target / check_key(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        await store.get(key, path)

    await for_each(get, [entry.key for entry in await store.list()], at_once=_AT_ONCE)


def bring_segments(remote: Location, layout: Layout, stored: StorageTree) -> Iterator[Action]:
    """Replace damaged and missing segments of the journal, as far as storage has them.

    The newest one is published while it grows: the bytes here after what is published stay.

    Raises StorageError, OSError.
    """
    for number, stretches in list(_wanted(layout.journal, stored)):
        data = with_store(remote, partial(_read, stretches=stretches))
        path = layout.journal / segment_name(number)
        rest = read_regular(path)[len(data) :] if path.exists() else b""
        yield put(layout.journal, Rebuilt(number=number, data=data + rest, how="from storage"))


async def _read(store: Store, stretches: list[Stretch]) -> bytes:
    parts = [(await store.read(f"{JOURNAL}/{one.name}"))[: one.size] for one in stretches]
    return b"".join(parts)


def _wanted(journal: Path, stored: StorageTree) -> Iterator[tuple[int, list[Stretch]]]:
    """The segments of which storage has more than can be read here, and those that are missing
    here below the newest one."""
    here = segments(journal)
    readable = {part.number: part.end for part in read_segments(journal) if not part.is_whole}
    known = sorted(map(stretch_of, stored.segments.values()), key=lambda one: one.end)
    for number in {stretch.segment for stretch in known}:
        stretches = [stretch for stretch in known if stretch.segment == number]
        ends = [stretch.end for stretch in stretches]
        is_whole = [stretch.start for stretch in stretches] == [0, *ends[:-1]]
        is_sound = stored.bad_segments.keys().isdisjoint(stretch.name for stretch in stretches)
        is_missing = number not in here and number < max(here, default=0)
        if is_whole and is_sound and (is_missing or readable.get(number, ends[-1]) < ends[-1]):
            yield number, stretches


def seal(journal: Path, parts: Sequence[Chapter]) -> Iterator[Action]:
    """Cut each experiment's segments at their first damage, and keep the bytes after it.

    Damage in one experiment takes nothing from the others. Raises OSError.
    """
    for chapter in parts:
        damage = chapter.damage
        if damage is None:
            continue
        cuts = [(segment, 0) for segment in reversed(damage.later)]
        for segment, offset in [*cuts, (damage.at, damage.offset)]:
            cut = cut_off(journal / segment_name(segment.number), offset)
            yield Action(
                what=f"put {cut.size_bytes} bytes from offset {offset} on aside, as "
                f"{cut.kept_as}: they are no records that can be used",
                where=f"{JOURNAL}/{cut.segment}",
            )
