"""The keeper of a node's tree: it brings what was written on the node to storage, and back.

It uses the claim of the owner, the uploader at the controller (`uploader.py`). It claims nothing,
publishes nothing and cleans nothing up, and it removes nothing from storage but a trial's own
files that the user has removed on this node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.checkpoint.staging import Staged, copy_checkpoint, put_in_place
from holdfast.syncer.checkpoint.upload import ShareUpload
from holdfast.syncer.errors import NotStored
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, remove_tree, unique
from holdfast.syncer.files.tree import MANIFEST_NAME, OF_SCRIPT
from holdfast.syncer.stores.retry import StorageRetry
from holdfast.syncer.uploader.keeper import Keeper

# How long the storage may take to be visible on a node, which asks before its first trial.
_SEEN_WITHIN_S = 30.0


class NodeKeeper(Keeper):
    """Performs the orders for one node."""

    def __init__(self, settings: UploaderSettings, tell: Callable[[list[Any]], None]) -> None:
        if settings.storage is None or settings.claimed is None:
            raise ValueError("a node's keeper needs the storage and the claim of the owner")
        super().__init__(settings, tell)

    async def see(self) -> tuple[str, str]:
        """Check that this node reads the owner's claim in storage, and can write there.

        Returns the key and the content of a token, which the owner must find. Raises StorageError
        if the node does not see the storage.
        """
        storage, location = self._storage, self._settings.storage
        assert storage is not None
        assert location is not None
        await self._mirror.open(is_continued=True)
        here = location.local_path
        if here is not None and not await threads.call(lambda: Path(here).is_dir()):
            # Nothing is created there: it would be on this node's own disk.
            raise NotStored("find", here, "there is no such folder on this node")
        retry = StorageRetry(
            timeout_s=min(_SEEN_WITHIN_S, self._settings.timeout_s),
            where=storage.where,
            tell=lambda text: None,
        )
        return await retry.until_done("look for the storage", storage.put_token)

    async def have(self, folder: str, *, committed: bool) -> str:
        """Why the checkpoint cannot be used here; "" if it can. Reads every byte of it."""
        directory = self._settings.root / folder
        return await threads.call(lambda: manifest.changed(directory, committed=committed))

    async def copy(self, source: str, target: str) -> Staged:
        """Copy a checkpoint for a clone of its trial. Raises StorageError or OSError."""
        original, place = self._settings.root / source, self._settings.root / target
        copied = place.with_name(f"{TEMPORARY}{unique()}")
        staged = await threads.call(lambda: copy_checkpoint(original, copied))
        await threads.call(lambda: put_in_place(copied, place))
        return staged

    async def share(
        self, trial_id: str, index: int, folder: str, left_out: Collection[str]
    ) -> None:
        """Upload this node's share of a checkpoint of ranks on several nodes, and report its
        files. Those `left_out` are another node's.

        No manifest is written here: on this node, the checkpoint is not whole.
        """
        directory, storage = self._settings.root / folder, self._storage
        assert storage is not None
        if not directory.exists():
            self._tell(["lost", trial_id, index, f"{directory} is gone"])
            return
        hashed = await self._read_once(trial_id, index, folder, lambda: self._hashed(directory))
        if hashed is None:
            return
        files = {name: fact for name, fact in hashed.files.items() if name not in left_out}
        upload = ShareUpload(
            storage=storage,
            committed=self._committed,
            directory=directory,
            folder=folder,
            written=replace(hashed, files=files),
        )
        await self._retry.until_done(f"upload {folder}", upload.perform)
        facts = {name: [fact.size, fact.checksum] for name, fact in files.items()}
        self._tell(["shared", trial_id, index, facts, list(hashed.empty_folders)])

    async def seal(self, folder: str, progress: TrialProgress) -> None:
        """Give a checkpoint that will not be uploaded its manifest, so that it can be used if the
        user copies it. Raises StorageError or OSError."""
        directory = self._settings.root / folder
        if directory.is_dir() and not (directory / MANIFEST_NAME).exists():
            await threads.call(lambda: self._seal(directory, progress))

    async def mirror(self, trials: Sequence[str], *, artifacts: bool) -> None:
        """Upload the output of the trials in these folders, and with `artifacts` their other
        files. Raises StorageError."""
        await self._mirror.send_records(trials)
        if artifacts:
            await threads.call(lambda: self._keep_scripts(trials))
            await self._mirror.send_artifacts(trials)

    def _keep_scripts(self, trials: Sequence[str]) -> None:
        """Give a file with the name of one that only the controller writes, from the journal,
        another one: here it is the script's own."""
        for trial in trials:
            with suppress(FileNotFoundError), os.scandir(self._settings.root / trial) as entries:
                for entry in entries:
                    if self._settings.is_remade(f"{trial}/{entry.name}") and entry.is_file():
                        os.replace(entry.path, f"{entry.path}{OF_SCRIPT}")

    async def hand_over(self, trial: str, *, with_checkpoints: bool = False) -> None:
        """Send the files of the trial in this folder for the last time, and remove them here: if
        it comes back, storage has newer ones. Its checkpoints stay, unless the trial has ended.

        Raises StorageError.
        """
        await self.mirror([trial], artifacts=True)
        self._mirror.indexes.forget(trial)
        folder = self._settings.root / trial
        if with_checkpoints:
            await threads.call(lambda: remove_tree(folder))
        else:
            await threads.call(lambda: self._remove_files(folder))

    def _remove_files(self, folder: Path) -> None:
        settings = self._settings
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and settings.is_checkpoint(entry.name):
                    continue
                if is_folder:
                    remove_tree(Path(entry.path))
                else:
                    os.unlink(entry.path)
