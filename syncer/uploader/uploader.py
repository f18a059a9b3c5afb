"""The uploader: hashes, syncs, uploads and removes, behind every report.

A checkpoint is committed when its manifest is: every other byte of it is then on the disk and,
where storage is elsewhere, confirmed by it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.syncer.artifacts.mirror import Mirror
from holdfast.syncer.artifacts.orders import Orders
from holdfast.syncer.artifacts.restore_artifacts import restore_artifacts
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import Manifest, Reached
from holdfast.syncer.checkpoint.removals import LocalRemovals, StoredRemovals
from holdfast.syncer.checkpoint.upload import CommittedFiles, Upload
from holdfast.syncer.errors import (
    ManifestMismatch,
    NotStored,
    StorageError,
    from_os_error,
)
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, fsync_dir, remove_tree, unique
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.files.unforced import BytesLost
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.owned_store import OwnedStore
from holdfast.syncer.stores.retry import Furthest, StorageRetry
from holdfast.syncer.stores.store import check_key
from holdfast.syncer.uploader.publication import Publication

_CONTESTABLE = (
    "{} cannot tell two restores at the same moment apart: let no other machine restore this "
    "experiment now"
)

_TIDY_S = 5.0
# As many as the cores can hash, and some that wait for the disk.
_SEALED_AT_ONCE = min(32, (os.cpu_count() or 1) + 4)


class Uploader:
    """Performs orders; each method is one of them."""

    def __init__(self, orders: Orders, tell: Callable[[list[Any]], None]) -> None:
        where = orders.storage.public if orders.storage else str(orders.root)
        self._orders = orders
        self._tell = tell
        self._retry = StorageRetry(
            timeout_s=orders.timeout_s,
            where=where,
            tell=lambda text: tell(["trouble", text]),
            moving=lambda: tell(["moving"]),
        )
        self._has_told_refusal = False
        self._here = LocalRemovals(orders.root, self._tell_refusal)
        self._storage: OwnedStore | None = None
        if orders.storage is not None:
            self._storage = OwnedStore(
                orders.storage.open_store(),
                where=where,
                experiment_id=orders.experiment_id,
                epoch=orders.epoch,
                parallel=orders.parallel,
            )
            self._mirror = Mirror(orders, self._storage, self._retry, tell)
            self._publication = Publication(orders, self._storage, self._retry, self._mirror)
            there = orders.storage.local_path
            self._there = StoredRemovals(
                self._storage,
                None if there is None else Path(there),
                timeout_s=orders.timeout_s,
                refused=self._tell_refusal,
            )
        self._committed = CommittedFiles()
        self._sealing = asyncio.Semaphore(_SEALED_AT_ONCE)
        self._pending_removal: list[str] = []

    @property
    def unfinished(self) -> dict[str, str]:
        """What is not done yet, and why."""
        return self._retry.unfinished

    async def open(self) -> str:
        """Claim the next epoch in storage, and return it: the newest incarnation owns it."""
        if self._storage is None:
            return ""
        await self._retry.until_done("claim the storage", self._storage.claim)
        if self._storage.is_contestable:
            self._tell(["warning", _CONTESTABLE.format(self._storage.where)])
        await self._retry.until_done("tidy the storage up", self._storage.sweep)
        await self._retry.until_done(
            "look for unfinished uploads", self._storage.recall_unfinished
        )
        await self._mirror.open(is_continued=bool(self._orders.epoch))
        await self._publication.recall()
        return self._storage.epoch

    async def commit(
        self,
        trial_id: str,
        index: int,
        folder: str,
        *,
        reached: Reached | None = None,
        uploads: bool = True,
    ) -> None:
        """Make a staged checkpoint durable here, complete there if it `uploads`, and say so. Its
        manifest says how far the trial had `reached`.

        Where it is gone here, as after a move to another machine, it may be complete there.
        """
        directory, storage = self._orders.root / folder, self._storage
        if not directory.exists():
            try:
                await self._retry.until_done(f"look for {folder}", lambda: self._look_for(folder))
            except (NotStored, ManifestMismatch) as error:
                self._tell(["lost", trial_id, index, f"{directory} is gone, and {error}"])
            else:
                self._tell(["committed", trial_id, index])
            return
        furthest = Furthest()
        try:
            # Checkpoints of a thousand trials may come in one moment: a few at a time are read,
            # and the deadline of each counts from then on.
            async with self._sealing:
                written = await self._retry.until_done(
                    f"commit {folder}",
                    lambda: threads.call(lambda: self._seal(directory, reached, furthest)),
                )
        except BytesLost as error:
            self._tell(["lost", trial_id, index, str(error)])
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

    def _seal(self, directory: Path, reached: Reached | None, furthest: Furthest) -> Manifest:
        """Its bytes, and its own name, which staging has only renamed; the manifest last."""
        try:
            for above in (directory.parent, self._orders.root):
                fsync_dir(above)
        except OSError as error:
            raise from_os_error(error, "commit", str(directory)) from error
        made = manifest.hash_directory(directory, durable=True, reached=furthest.reached)
        return manifest.write(directory, made, reached=reached)

    async def _look_for(self, folder: str) -> None:
        """Raise NotStored or ManifestMismatch unless the checkpoint is complete in storage."""
        storage, found = await self._listed(folder)
        data = await storage.read(f"{folder}/{MANIFEST_NAME}")
        sizes = {key.removeprefix(f"{folder}/"): size for key, size in found.items()}
        if problems := Manifest.from_bytes(data, folder).differences(sizes):
            raise ManifestMismatch(folder, problems)

    async def _listed(self, folder: str) -> tuple[OwnedStore, dict[str, int]]:
        """Where a committed checkpoint is, and its keys there with sizes. Raises NotStored."""
        storage = self._storage
        if storage is None:
            raise NotStored("find", folder, "there is no other storage to have it from")
        found = {entry.key: entry.size for entry in await storage.list(folder)}
        if f"{folder}/{MANIFEST_NAME}" not in found:
            await storage.check(at_once=True)
            raise NotStored("find", folder, "its manifest is not there: it was never committed")
        return storage, found

    def mark_for_removal(self, folders: Sequence[str]) -> None:
        """From storage they go once a head that names them no more is published."""
        if self._storage is not None:
            self._pending_removal += folders

    def take_pending_removals(self) -> tuple[str, ...]:
        """Take what was pending by now: what a publication that is ordered now does not name."""
        pending, self._pending_removal = tuple(self._pending_removal), []
        return pending

    async def discard(self, folders: Sequence[str] = ()) -> None:
        """Remove superseded checkpoints here; one that is gone already is fine, and one that is
        being read is removed later."""
        await self._here.remove(folders)

    async def remove(self, folders: Sequence[str]) -> None:
        """Remove from storage what no head there names any more. Raises Usurped."""
        if self._storage is not None:
            await self._publication.remove_superseded()
            await self._there.remove(folders)

    async def tidy(self) -> None:
        """Try for the last time to remove what could not be removed."""
        await self._here.remove(at_last=True)
        if self._storage is not None:
            await self._there.remove(at_last=True)

    @property
    def left(self) -> list[str]:
        """A line for each superseded checkpoint that is still there, with the reason."""
        there = () if self._storage is None else self._there.left
        return [*self._here.left, *there]

    def _tell_refusal(self, where: str, why: str) -> None:
        if not self._has_told_refusal:
            self._has_told_refusal = True
            self._tell(["stuck", where, why])

    async def fetch(self, folder: str) -> None:
        """Bring a checkpoint from storage to the local tree, whole.

        Raises NotStored or ManifestMismatch where it is lost, another StorageError where storage
        does not give it.
        """
        await self._retry.until_done(f"fetch {folder}", lambda: self._fetch(folder))

    async def _fetch(self, folder: str) -> None:
        storage, keys = await self._listed(folder)
        target = self._orders.root / folder
        partial = target.with_name(f"{TEMPORARY}{unique()}")
        try:
            async with asyncio.TaskGroup() as tasks:
                for key in keys:
                    name = check_key(key.removeprefix(f"{folder}/"))
                    tasks.create_task(storage.download(key, partial / name))
            await threads.call(lambda: _verify(partial))
            await threads.call(lambda: remove_tree(target))
            partial.rename(target)
        finally:
            await threads.call(lambda: remove_tree(partial))

    async def find(self, trial_id: str, folder: str, first: str) -> list[list[Any]]:
        """The trial's whole checkpoints in this folder of the storage, newest first, from the one
        named `first` on: name, iteration, training time, number of files, bytes.

        Only those whose manifest says how far the trial had come. Raises StorageError.
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
            if inside and self._orders.is_checkpoint(name) and _in_order(name) >= _in_order(first):
                sizes.setdefault(name, {})[inside] = entry.size
        if not sizes:
            await storage.check(at_once=True)  # an empty mount point has nothing either
        found: list[list[Any]] = []
        for name in sorted(sizes, key=_in_order, reverse=True):
            try:
                data = await storage.read(f"{folder}/{name}/{MANIFEST_NAME}")
                made = Manifest.from_bytes(data, f"{folder}/{name}")
            except (NotStored, ManifestMismatch):
                continue
            reached = made.reached
            is_its = reached is not None and reached.trial_id == trial_id
            if reached is not None and is_its and not made.differences(sizes[name]):
                known = [name, reached.iteration, reached.time_total_s]
                found.append([*known, len(made.files), made.total_bytes])
        return found

    async def publish(self, end: Position, begins: int) -> None:
        """Make everything in the journal before `end` visible in storage.

        `begins` is the segment in which this experiment begins. Raises StorageError.
        """
        if self._storage is not None:
            await self._publication.extend(end, begins)
            self._tell(["published", end.segment, end.offset])

    async def send_artifacts(self, trials: Sequence[str] | None) -> int:
        """Have in storage what these trials (their folders; None: all) have written, as it is
        now; how many files travelled. Raises StorageError."""
        return 0 if self._storage is None else await self._mirror.send_artifacts(trials)

    async def bring_artifacts(self, trial: str) -> None:
        """Have here what the trial in this folder has written on another machine.

        Raises StorageError.
        """
        if self._storage is not None:
            await restore_artifacts(trial, self._orders, self._storage, self._retry, self._mirror)

    @property
    def left_out(self) -> str:
        """Which files are not in storage as they are here, and why; "" where all are."""
        return "" if self._storage is None else self._mirror.skipped.listed()

    async def close(self) -> None:
        """Readers of remote checkpoints that were killed have left copies here, which go too."""
        from holdfast.syncer.checkpoint.shared_copy import remove_unread

        if self._storage is not None:
            with suppress(StorageError, TimeoutError):  # the next incarnation finds them, too
                async with asyncio.timeout(_TIDY_S):
                    await self._storage.abandon_recalled()
            await self._storage.close()
        await threads.call(remove_unread)


def _in_order(name: str) -> tuple[int, str]:
    """Numbers have six digits, or more: a longer one is greater."""
    return len(name), name


def _verify(directory: Path) -> None:
    """Hold every byte against the manifest; no store keeps folders that hold no file."""
    for name in manifest.verify(directory, deep=True).empty_folders:
        (directory / check_key(name)).mkdir(parents=True, exist_ok=True)
