"""Removes a whole experiment, here and in storage, under its lock and its claim.

What is removed first makes the rest unreadable: the folder gets a hidden name, and storage loses
its head and its journal. The claims in storage go last. So an interrupted removal leaves nothing
that a reader takes for an experiment, and a second one finishes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from holdfast.experiment.folder.experiment_folders import aside_of
from holdfast.experiment.folder.layout import HEAD, JOURNAL, Layout
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError, os_errors
from holdfast.syncer.files.durable import fsync_dir
from holdfast.syncer.files.tree import CLAIMS
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim, OwnedStore
from holdfast.syncer.stores.store import Store
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trees import delete_tree, refuse_mounts

_BATCH = 1_000  # as many as one request to S3 deletes


def erase(
    layout: Layout | None,
    remote: Location | None,
    *,
    experiment_id: str = "",
    known: Claim | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Remove the tree on this machine, the storage, or both.

    `known` is the newest claim when the storage was listed: if there is a newer one, another run
    has begun there. `progress` is called with the number of removed objects and of all.

    Raises Locked while a process runs the experiment, ClaimLost, StorageError.
    """
    with ExitStack() as held:
        if layout is not None and layout.root.exists():
            with os_errors("lock", str(layout.root)):
                lock = ExperimentLock(layout.lock, is_mirror=remote is not None)
            held.callback(lock.release)
        if remote is not None:
            _erase_stored(remote, experiment_id, known, progress)
        if layout is not None:
            erase_tree(layout.root)


def erase_tree(root: Path) -> None:
    """Remove a folder whose lock the caller holds. Links in it are removed, and not followed.

    Raises StorageError.
    """
    aside = aside_of(root)
    with os_errors("remove", str(root)):
        delete_tree(aside)  # of an interrupted removal
        if os.path.lexists(root):
            refuse_mounts(root)
            os.rename(root, aside)
            fsync_dir(root.parent)
            delete_tree(aside)


def _erase_stored(
    remote: Location,
    experiment_id: str,
    known: Claim | None,
    progress: Callable[[int, int], None],
) -> None:
    if remote.local_path is not None:
        with_store(remote, partial(_claimed, experiment_id=experiment_id, known=known))
        erase_tree(Path(remote.local_path))
        return
    erases = partial(erase_objects, experiment_id=experiment_id, known=known, progress=progress)
    with_store(remote, erases)


async def erase_objects(
    store: Store,
    *,
    experiment_id: str,
    known: Claim | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Remove every object of an experiment, the newest claim of which is `known`.

    Raises ClaimLost if another run begins there meanwhile, StorageError.
    """
    owned, keys = await _claimed(store, experiment_id=experiment_id, known=known)
    if await store.unfinished():
        await store.abandon()
    done = 0
    for batch in _batches(keys):
        await owned.delete(batch)
        done += len(batch)
        progress(done, len(keys))
    await owned.check(at_once=True)
    await store.delete([key for key in keys if key.startswith(f"{CLAIMS}/")])


async def _claimed(
    store: Store, *, experiment_id: str, known: Claim | None
) -> tuple[OwnedStore, list[str]]:
    """The storage, claimed for this removal, and its keys with that of the claim."""
    keys = [entry.key for entry in await store.list("", leftovers=True)]
    if Claim.newest(keys) != known:
        cause = "another run or restore of this experiment has begun meanwhile"
        raise StorageError("remove", store.where, cause, "Look at it again")
    owned = OwnedStore(store, where=store.where, experiment_id=experiment_id, parallel=8)
    await owned.claim()
    assert owned.claimed is not None
    return owned, [*keys, owned.claimed.key]


def _batches(keys: Sequence[str]) -> Iterator[list[str]]:
    """The keys in the order in which they are removed, without the claims."""
    rest = [key for key in keys if not key.startswith(f"{CLAIMS}/")]
    # In one request: without its head a whole journal can be read.
    first = [*(key for key in rest if key.startswith(f"{JOURNAL}/")), HEAD]
    yield first
    others = [key for key in rest if key not in set(first)]
    for at in range(0, len(others), _BATCH):
        yield others[at : at + _BATCH]
