"""`holdfast doctor repair` and `gc`: repairs what the journal or storage allows, removes what
nothing needs, and reports the rest.

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

from holdfast.experiment.folder.contents import check_enclosed, check_enclosed_trials
from holdfast.experiment.folder.layout import JOURNAL, Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.journal import Chapter, pack, read_segments, wall_time
from holdfast.experiment.records.opened import locked
from holdfast.results.doctor import examination, storage
from holdfast.results.doctor.examination import Garbage
from holdfast.results.doctor.findings import Action, DoctorReport, Remedy
from holdfast.results.doctor.storage import PREFIX, StorageTree
from holdfast.results.doctor.tree import Rebuilt, Tree, put, rebuild, tree_at
from holdfast.results.doctor.verify import Depth, verify
from holdfast.results.reading import ExperimentSite
from holdfast.results.removal import claimed
from holdfast.scheduler.events import CheckpointLost
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import BeingRead, retire
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import TEMPORARY, fsync_dir, remove_tree, unique
from holdfast.syncer.files.tree import MANIFEST_NAME, read_regular
from holdfast.syncer.journal.journal import Journal, cut_off, segment_name, segments
from holdfast.syncer.journal.stretches import Stretch, stretch_of
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.stores.store import Store
from holdfast.syncer.uploader.lock import Locked, current_holder
from holdfast.text.values import size
from holdfast.trees import delete_tree, refuse_mounts
from holdfast.trial.errors import TuneError


def collect(target: ExperimentSite, *, removes: bool) -> DoctorReport:
    """Find what nothing needs, here and in storage; with `removes`, remove it.

    Raises Locked while a process on this machine runs the experiment, Usurped if another machine
    has claimed it, Mounted, OSError, StorageError.
    """
    began = time.monotonic()
    being_read = set[str]()
    if target.layout is None:
        here, unneeded = None, list[Garbage]()
        there = _collect_there(target, None, removes=removes)
    elif removes:
        with locked(target.layout):
            here, unneeded = _find_garbage(target.layout)
            check_enclosed(target.layout, examination.trial_folders(here))
            being_read = _remove(target.layout.root, unneeded)
            there = _collect_there(target, here, removes=True)
    else:
        _check_free(target.layout)
        here, unneeded = _find_garbage(target.layout)
        there = _collect_there(target, here, removes=False)
    actions = [_action(one, done=removes and one.where not in being_read) for one in unneeded]
    actions += [_action(one, done=removes, prefix=PREFIX) for one in there]
    size = sum(one.size_bytes for one in (*unneeded, *there))
    return DoctorReport(
        path=target.shown,
        findings=tuple(here.findings) if here is not None else (),
        actions=tuple(actions),
        looked_at={"garbage": len(actions), "garbage_bytes": size},
        seconds=time.monotonic() - began,
    )


def _find_garbage(layout: Layout) -> tuple[Tree, list[Garbage]]:
    known = tree_at(layout)
    return known, examination.garbage_here(known)


def _check_free(layout: Layout) -> None:
    if user := current_holder(layout.lock):
        raise Locked(
            "collect garbage in",
            str(layout.root),
            f"{user} is using it",
            "Wait for it: its unfinished files are not garbage",
        )


def _remove(root: Path, unneeded: Sequence[Garbage]) -> set[str]:
    """Remove the files; return those that stay because a process is reading them."""
    stays = set[str]()
    for one in unneeded:
        refuse_mounts(root / one.where)
    for one in unneeded:
        path = root / one.where
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            continue
        try:
            aside = retire(path)
        except BeingRead:
            stays.add(one.where)
        else:
            if aside is not None:
                delete_tree(aside)
    return stays


def _collect_there(target: ExperimentSite, here: Tree | None, *, removes: bool) -> list[Garbage]:
    if target.remote is None:
        return []
    stored = storage.gather(target.remote, target.layout)
    unneeded = storage.storage_garbage(stored, here)
    if removes and unneeded and stored.published.replayed is not None:
        spec = stored.published.replayed.machine.spec
        _remove_there(target.remote, unneeded, spec.experiment_id, known=stored.newest_claim)
    return unneeded


def _remove_there(
    remote: Location, unneeded: Sequence[Garbage], experiment_id: str, *, known: Claim | None
) -> None:
    """Claim the storage, which ends a run elsewhere, and remove the objects.

    If another run has started since they were listed, it has claimed the storage and may own the
    objects.
    """
    wanted = {one.where for one in unneeded}

    async def remove(store: Store) -> None:
        owned, found = await claimed(
            store, "collect garbage in", experiment_id=experiment_id, known=known
        )
        keys = [key for key in found if _is_in(key, wanted)]
        # The manifests first, so that the rest does not look like a checkpoint.
        markers = [key for key in keys if key.endswith(f"/{MANIFEST_NAME}")]
        await owned.delete(markers)
        await owned.delete([key for key in keys if key not in set(markers)])

    with_store(remote, remove)


def _is_in(key: str, wanted: set[str]) -> bool:
    parts = key.split("/")
    return any("/".join(parts[:length]) in wanted for length in range(1, len(parts) + 1))


def _action(one: Garbage, *, done: bool, prefix: str = "") -> Action:
    return Action(
        what=f"{one.why} ({size(one.size_bytes)})", where=f"{prefix}{one.where}", is_done=done
    )


_AT_ONCE = 16
# The end of the name of a snapshot that is kept, but not read.
_UNUSABLE = ".unusable"


class NothingHere(TuneError):
    """The command needs the experiment's directory on this machine, and there is none."""

    def __init__(self, target: ExperimentSite, command: str) -> None:
        super().__init__(
            f"{command} needs the directory in which the experiment ran, and this machine has "
            f"none for {target.shown} (RAY_AIR_LOCAL_CACHE_DIR names the folder of these "
            f"directories). A restore creates one: {holdfast_command('resume', target.shown)}"
        )


def repair(
    target: ExperimentSite,
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
    target: ExperimentSite, layout: Layout, settings: Settings, depth: Depth
) -> Iterator[Action]:
    # Before any change: storage may not answer.
    stored = None if target.remote is None else storage.gather(target.remote, target.layout)
    if target.remote is not None and stored is not None:
        yield from bring_segments(target.remote, layout, stored)
    yield from rebuild(layout, is_mirror=bool(target.kept_in))
    before = tree_at(layout)
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
    target: ExperimentSite, tree: Tree, stored: StorageTree | None
) -> Iterator[Action]:
    """Take broken checkpoints from storage, or drop them from the records, as a restore does."""
    assert tree.replayed is not None
    lost: list[CheckpointLost] = []
    for checkpoint in examination.named_checkpoints(tree.replayed):
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


def _lost(checkpoint: examination.NamedCheckpoint, reason: str) -> CheckpointLost:
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
        known = storage.bring_checkpoint(remote.child(folder), partial).manifest
        manifest.write(partial, progress=None if known is None else known.progress)
        remove_tree(target)
        os.rename(partial, target)
        fsync_dir(target.parent)
    finally:
        remove_tree(partial)


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
