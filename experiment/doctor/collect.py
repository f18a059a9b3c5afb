"""`holdfast doctor gc`: lists or removes files that nothing needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.experiment.doctor import garbage, persisted, storage, tree
from holdfast.experiment.doctor.findings import Action, DoctorReport
from holdfast.experiment.doctor.garbage import Garbage
from holdfast.experiment.doctor.persisted import PREFIX
from holdfast.experiment.doctor.target import DoctorTarget
from holdfast.experiment.doctor.tree import Tree
from holdfast.experiment.folder.containment import check_enclosed
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.opened import locked
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import BeingRead, retire
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim, OwnedStore
from holdfast.syncer.stores.store import Store
from holdfast.syncer.uploader.lock import Locked, current_holder
from holdfast.text.values import size
from holdfast.trees import delete_tree, refuse_mounts


def collect(target: DoctorTarget, *, removes: bool) -> DoctorReport:
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
            check_enclosed(target.layout, garbage.trial_folders(here))
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
    known = tree.read(layout)
    return known, garbage.here(known)


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


def _collect_there(target: DoctorTarget, here: Tree | None, *, removes: bool) -> list[Garbage]:
    if target.remote is None:
        return []
    stored = storage.gather(target.remote, target.layout)
    unneeded = persisted.garbage(stored, here)
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
        owned = OwnedStore(store, where=remote.public, experiment_id=experiment_id, parallel=8)
        entries = await store.list("", leftovers=True)
        newest = Claim.newest(entry.key for entry in entries)
        if newest != known:
            cause = "another restore of this experiment has started meanwhile"
            raise StorageError("collect garbage in", remote.public, cause, "Wait for it")
        await owned.claim()
        keys = [e.key for e in entries if _is_in(e.key, wanted)]
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
