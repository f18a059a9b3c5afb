"""A checkpoint from storage to its place in the tree, manifest and all."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.experiment.folder.layout import Layout
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.files.durable import TEMPORARY, fsync_dir, remove_tree, unique
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import Store, check_key, for_each

_AT_ONCE = 16


def bring_checkpoint(remote: Location, layout: Layout, folder: str) -> None:
    """Download, verify every byte, and put it in the place of what is there.

    Raises StorageError, and then leaves what is there.
    """
    target = layout.root / folder
    partial = target.with_name(f"{TEMPORARY}{unique()}")
    try:
        partial.mkdir(parents=True)
        with_store(remote.child(folder), lambda store: _download(store, partial))
        known = manifest.verify(partial, deep=True)
        for name in known.empty_folders:
            (partial / check_key(name)).mkdir(parents=True, exist_ok=True)
        manifest.write(partial, reached=known.reached)
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
