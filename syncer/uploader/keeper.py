"""What the keepers of all trees do, the controller's and those of nodes: they commit, find and
fetch checkpoints.

A checkpoint is committed when its manifest is written. All its files were then forced to the disk
and, if storage is elsewhere, confirmed by the storage.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.syncer.artifacts.mirror import Mirror, restore_artifacts
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.download import Remote, fetch_files, remove_unread
from holdfast.syncer.checkpoint.manifest import Manifest, TrialProgress
from holdfast.syncer.checkpoint.reading import LocalRemovals
from holdfast.syncer.checkpoint.upload import CommittedFiles, Upload
from holdfast.syncer.errors import ManifestMismatch, NotStored, os_errors
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, fsync_dir, remove_tree, unique
from holdfast.syncer.files.forcing import BytesLost
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.stores.owned_store import OwnedStore
from holdfast.syncer.stores.retry import StorageRetry, moved_to
from holdfast.syncer.stores.store import ObjectInfo, check_key

# One per core for hashing, and a few more that wait for the disk.
_SEALED_AT_ONCE = min(32, (os.cpu_count() or 1) + 4)


class Keeper:
    """Keeps the checkpoints below `settings.root`, and the trials' own files.

    The owner (`uploader.py`) and the keepers of nodes (`node_keeper.py`) add what only they may
    do. `tell` sends the controller a message.
    """

    def __init__(self, settings: UploaderSettings, tell: Callable[[list[Any]], None]) -> None:
        where = settings.storage.public if settings.storage else str(settings.root)
        self._settings = settings
        self._tell = tell
        self._retry = StorageRetry(
            timeout_s=settings.timeout_s,
            where=where,
            tell=lambda text: tell(["trouble", text]),
            is_back=lambda text: tell(["trouble", text]),
            moving=lambda: tell(["moving"]),
        )
        self._has_told_refusal = False
        self._here = LocalRemovals(settings.root, self._tell_refusal)
        self._storage: OwnedStore | None = None
        if settings.storage is not None:
            self._storage = OwnedStore(
                settings.storage.open_store(),
                where=where,
                experiment_id=settings.experiment_id,
                parallel=settings.parallel,
                claimed=settings.claimed,
            )
            self._mirror = Mirror(settings, self._storage, self._retry, tell)
        self._committed = CommittedFiles()
        self._sealing = asyncio.Semaphore(_SEALED_AT_ONCE)

    @property
    def unfinished(self) -> dict[str, str]:
        """The operations that are not done yet, with their reasons."""
        return self._retry.unfinished

    async def commit(
        self,
        trial_id: str,
        index: int,
        folder: str,
        *,
        progress: TrialProgress | None = None,
        uploads: bool = True,
    ) -> None:
        """Force a staged checkpoint to the disk, upload it if `uploads`, and report that. Its
        manifest records the trial's `progress`.

        If the checkpoint is missing here, as after a move to another machine, storage may have it.
        """
        directory, storage = self._settings.root / folder, self._storage
        if not directory.exists():
            problem = await self._absence(folder)
            self._report(trial_id, index, problem and f"{directory} is gone, and {problem}")
            return
        written = await self._read_once(
            trial_id, index, folder, lambda: self._seal(directory, progress)
        )
        if written is None:
            return
        if storage is not None and uploads:
            upload = Upload(
                storage=storage,
                committed=self._committed,
                directory=directory,
                folder=folder,
                written=written,
            )
            await self._retry.until_done(f"upload {folder}", upload.perform)
        self._tell(["committed", trial_id, index])

    async def _read_once(
        self, trial_id: str, index: int, folder: str, seal: Callable[[], Manifest]
    ) -> Manifest | None:
        """The result of `seal`, which forces a checkpoint to the disk. Reports it if its bytes are
        lost."""
        try:
            # A thousand trials may save at once. Only a few checkpoints are read at a time, and
            # the deadline of each begins then.
            async with self._sealing:
                return await self._retry.until_done(f"commit {folder}", lambda: threads.call(seal))
        except BytesLost as error:
            self._tell(["lost", trial_id, index, str(error)])
            return None

    async def look(self, trial_id: str, index: int, folder: str, progress: TrialProgress) -> None:
        """Report whether storage has the checkpoint of a lost node, whole or not at all.

        If not, it is committed from here if the user has copied it from that node. Its manifest
        shows this by the trial's progress, whose time no other attempt has. Other files do not
        count: they may be of another attempt, or a part of it.
        """
        directory = self._settings.root / folder
        if not (problem := await self._absence(folder)):
            self._report(trial_id, index, "")
        elif await threads.call(lambda: _is_sealed_at(directory, progress)):
            await self.commit(trial_id, index, folder, progress=progress)
        else:
            self._report(trial_id, index, f"the node that had it is lost, and {problem}")

    def _report(self, trial_id: str, index: int, lost: str) -> None:
        self._tell(["lost", trial_id, index, lost] if lost else ["committed", trial_id, index])

    async def _absence(self, folder: str) -> str:
        """Why the checkpoint is not complete in storage; "" if it is."""
        try:
            await self._retry.until_done(f"look for {folder}", lambda: self._look_for(folder))
        except (NotStored, ManifestMismatch) as error:
            return str(error)
        return ""

    def _seal(self, directory: Path, progress: TrialProgress | None) -> Manifest:
        """Force a checkpoint to the disk, and write the manifest last."""
        return manifest.write(directory, self._hashed(directory), progress=progress)

    def _hashed(self, directory: Path) -> Manifest:
        """Force the checkpoint's name to the disk, which staging has only renamed. Then hash the
        files and force them to the disk."""
        with os_errors("commit", str(directory)):
            for above in (directory.parent, self._settings.root):
                fsync_dir(above)
        return manifest.hash_directory(directory, on_file=lambda count: moved_to("commit", count))

    async def _look_for(self, folder: str) -> None:
        """Raise NotStored or ManifestMismatch unless the checkpoint is complete in storage."""
        if self._storage is None:
            await threads.call(lambda: manifest.verify(self._settings.root / folder))
            return
        await self._find_committed(folder)

    async def _find_committed(self, folder: str) -> tuple[OwnedStore, Remote, bytes]:
        """The storage, a committed checkpoint there, and its manifest as it is. Raises NotStored,
        ManifestMismatch."""
        storage = self._storage
        if storage is None:
            raise NotStored("find", folder, "this experiment has no other storage")
        found = {
            check_key(entry.key.removeprefix(f"{folder}/")): entry
            for entry in await storage.list(folder)
        }
        if MANIFEST_NAME not in found:
            await storage.check(at_once=True)
            raise NotStored("find", folder, "it has no manifest, so it was never committed")
        data = await storage.read(f"{folder}/{MANIFEST_NAME}")
        made = Manifest.from_bytes(data, folder)
        if problems := made.differences({name: entry.size for name, entry in found.items()}):
            raise ManifestMismatch(folder, problems)
        entries = tuple(replace(entry, key=name) for name, entry in found.items())
        return storage, Remote(entries=entries, manifest=made), data

    async def fetch(self, folder: str) -> None:
        """Download a checkpoint from storage to the local tree.

        Raises NotStored or ManifestMismatch if it is lost, another StorageError if the download
        fails.
        """
        await self._retry.until_done(f"fetch {folder}", lambda: self._fetch(folder))

    async def _fetch(self, folder: str) -> None:
        storage, remote, written = await self._find_committed(folder)
        target = self._settings.root / folder
        partial = target.with_name(f"{TEMPORARY}{unique()}")

        async def get(entry: ObjectInfo, path: Path, algorithm: str | None) -> str:
            there = replace(entry, key=f"{folder}/{entry.key}")
            checksum = await storage.get_hashed(there, path, algorithm)
            moved_to(there.key, 1)
            return checksum

        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            await fetch_files(get, remote, partial)
            (partial / MANIFEST_NAME).write_bytes(written)
            await threads.call(lambda: remove_tree(target))
            partial.rename(target)
        finally:
            await threads.call(lambda: remove_tree(partial))

    async def find(self, trial_id: str, folder: str, first: str) -> list[list[Any]]:
        """The trial's complete checkpoints in this folder of the storage, newest first, down to
        the one named `first`: name, iteration, training time, number of files, bytes.

        Skips those whose manifest does not say how far the trial had come. Raises StorageError.
        """
        return await self._retry.until_done(
            f"look for checkpoints in {folder}", lambda: self._find(trial_id, folder, first)
        )

    async def _find(self, trial_id: str, folder: str, first: str) -> list[list[Any]]:
        storage = self._storage
        if storage is None:
            return []
        sizes: dict[str, dict[str, int]] = {}
        for entry in await storage.list(folder):
            name, _, inside = entry.key.removeprefix(f"{folder}/").partition("/")
            is_wanted = self._settings.is_checkpoint(name) and _in_order(name) >= _in_order(first)
            if inside and is_wanted:
                sizes.setdefault(name, {})[inside] = entry.size
        if not sizes:
            await storage.check(at_once=True)  # it may be an empty mount point
        found: list[list[Any]] = []
        for name in sorted(sizes, key=_in_order, reverse=True):
            try:
                data = await storage.read(f"{folder}/{name}/{MANIFEST_NAME}")
                made = Manifest.from_bytes(data, f"{folder}/{name}")
            except (NotStored, ManifestMismatch):
                continue
            progress = made.progress
            is_its = progress is not None and progress.trial_id == trial_id
            if progress is not None and is_its and not made.differences(sizes[name]):
                known = [name, progress.iteration, progress.time_total_s]
                found.append([*known, len(made.files), made.total_bytes])
        return found

    async def discard(self, folders: Sequence[str] = ()) -> None:
        """Remove superseded checkpoints here. Missing ones are fine, and one that a process reads
        is removed later."""
        await self._here.remove(folders)

    async def tidy(self) -> None:
        """Retry the failed removals for the last time."""
        await self._here.remove(at_last=True)

    @property
    def left(self) -> list[str]:
        """A line for each superseded checkpoint that remains, with the reason."""
        return list(self._here.left)

    def _tell_refusal(self, where: str, why: str) -> None:
        if not self._has_told_refusal:
            self._has_told_refusal = True
            self._tell(["stuck", where, why])

    async def bring_artifacts(self, trial: str, *, all_files: bool = True) -> None:
        """Download the files that the trial in this folder has written on another machine: its
        output, and all others unless only that is wanted.

        Raises StorageError.
        """
        if self._storage is not None:
            is_wanted = None if all_files else self._settings.is_record
            await restore_artifacts(
                trial, self._settings, self._storage, self._retry, self._mirror, is_wanted
            )

    @property
    def left_out(self) -> str:
        """The files whose current content is not in storage, with reasons; "" if none."""
        return "" if self._storage is None else self._mirror.skipped.listed()

    async def close(self) -> None:
        """Close the storage, and remove copies that killed readers of remote checkpoints left."""
        if self._storage is not None:
            await self._storage.close()
        await threads.call(remove_unread)


def _in_order(name: str) -> tuple[int, str]:
    """The sort key of a name: numbers have at least six digits, and longer ones are greater."""
    return len(name), name


def _is_sealed_at(directory: Path, progress: TrialProgress) -> bool:
    """Whether this is the whole checkpoint of a trial with this progress. Reads every byte."""
    try:
        return manifest.verify(directory, deep=True).progress == progress
    except (NotStored, ManifestMismatch):
        return False
