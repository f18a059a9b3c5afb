"""The uploader of one tree: brings what was written there to storage, and back.

A checkpoint is committed when its manifest is written. All its files were then forced to the disk
and, if storage is elsewhere, confirmed by the storage.

The uploader of the controller's tree owns the storage: it claims it, publishes the records there,
and removes what no record names. The uploader of a node (`settings.node`) uses that claim. It
claims nothing, publishes nothing and cleans nothing up, and it removes nothing from storage but a
trial's own files that the user has removed on this node.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.mirror import Mirror, restore_artifacts
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.download import Remote, fetch_files, remove_unread
from holdfast.syncer.checkpoint.manifest import Manifest, TrialProgress
from holdfast.syncer.checkpoint.removals import LocalRemovals, StoredRemovals
from holdfast.syncer.checkpoint.staging import Staged, copy_checkpoint, put_in_place
from holdfast.syncer.checkpoint.upload import CommittedFiles, ShareUpload, Upload, complete
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError, os_errors
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, fsync_dir, remove_tree, unique
from holdfast.syncer.files.forcing import BytesLost
from holdfast.syncer.files.tree import MANIFEST_NAME, OF_SCRIPT
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.owned_store import Claim, OwnedStore
from holdfast.syncer.stores.retry import StorageRetry, moved_to
from holdfast.syncer.stores.store import ObjectInfo, check_key
from holdfast.syncer.uploader.messages import (
    Answer,
    Commit,
    Committed,
    Complete,
    Failed,
    FoundCheckpoint,
    LookFor,
    NotCommitted,
    Notice,
    Progress,
    Published,
    Shared,
    Sign,
    UploadShare,
)
from holdfast.syncer.uploader.publication import Publication

NoticeName = Literal["warning", "trouble", "blind", "refused", "gone"]

# One per core for hashing, and a few more that wait for the disk.
_SEALED_AT_ONCE = min(32, (os.cpu_count() or 1) + 4)
# How long the storage may take to be visible on a node, which asks before its first trial.
_SEEN_WITHIN_S = 30.0
_TIDY_S = 5.0
_CONTESTABLE = (
    "{} cannot detect two simultaneous restores: make sure that no other machine restores this "
    "experiment now"
)


@dataclass(frozen=True, slots=True)
class _StorageSide:
    """The storage, if it is not the local tree, and what changes it. `folder` is the storage as a
    directory on this machine, None if it is elsewhere."""

    store: OwnedStore
    folder: Path | None
    mirror: Mirror
    publication: Publication
    removals: StoredRemovals


class Uploader:
    """Performs orders for the tree below `settings.root`; each method performs one kind. `send`
    sends the controller an answer."""

    def __init__(self, settings: UploaderSettings, send: Callable[[Answer], None]) -> None:
        if settings.node and (settings.storage is None or settings.claimed is None):
            raise ValueError("a node's uploader needs the storage and the claim of the owner")
        where = settings.storage.public if settings.storage else str(settings.root)
        self._settings = settings
        self._send = send
        self._retry = StorageRetry(
            timeout_s=settings.timeout_s,
            where=where,
            tell=partial(self._notice, "trouble"),
            is_back=partial(self._notice, "trouble"),
            moving=lambda: send(Sign(name="moving")),
        )
        self._has_told_refusal = False
        self._here = LocalRemovals(settings.root, self._refuse_removal)
        self._pending_removal: list[str] = []
        self._committed = CommittedFiles()
        self._sealing = asyncio.Semaphore(_SEALED_AT_ONCE)
        # What this run claims: the storage, or this tree as nodes see it, since they write there.
        self._claimed: OwnedStore | None = None
        self._storage: _StorageSide | None = None
        if (place := settings.storage or settings.shared) is not None:
            self._claimed = OwnedStore(
                place.open_store(),
                where=place.public,
                experiment_id=settings.experiment_id,
                parallel=settings.parallel,
                claimed=settings.claimed,
            )
            if place is settings.storage:
                self._storage = self._side_of(self._claimed, place.local_path)

    def _side_of(self, store: OwnedStore, local_path: str | None) -> _StorageSide:
        settings, retry, refuse = self._settings, self._retry, self._refuse_removal
        folder, warn = Path(local_path) if local_path else None, partial(self._notice, "warning")
        mirror = Mirror(settings, store, retry, warn=warn, on_progress=self._progress)
        publication = Publication(settings, store, retry, mirror)
        removals = StoredRemovals(store, folder, timeout_s=settings.timeout_s, refused=refuse)
        return _StorageSide(store, folder, mirror, publication, removals)

    @property
    def _side(self) -> _StorageSide:
        """The storage, for orders that come only where there is one: a node always has it."""
        assert self._storage is not None
        return self._storage

    def _notice(self, name: NoticeName, text: str) -> None:
        self._send(Notice(name=name, text=text))

    def _progress(self, files: int, total: int, done_bytes: int, total_bytes: int) -> None:
        self._send(
            Progress(
                files=files, total_files=total, done_bytes=done_bytes, total_bytes=total_bytes
            )
        )

    def _refuse_removal(self, where: str, why: str) -> None:
        if not self._has_told_refusal:
            self._has_told_refusal = True
            self._send(Failed(name="stuck", what=where, why=why))

    @property
    def is_of_node(self) -> bool:
        return bool(self._settings.node)

    @property
    def unfinished(self) -> dict[str, str]:
        """The operations that are not done yet, with their reasons."""
        return self._retry.unfinished

    # -- the storage --------------------------------------------------------------------------

    async def open(self) -> Claim | None:
        """Claim the storage, and return the claim; None if the local tree is the storage, and no
        node writes to it."""
        if self._claimed is None:
            return None
        await self._retry.until_done("claim the storage", self._claimed.claim)
        if (storage := self._storage) is not None:
            store = storage.store
            if store.is_contestable:
                self._notice("warning", _CONTESTABLE.format(store.where))
            await self._retry.until_done("clean up the storage", store.remove_leftovers)
            await self._retry.until_done("look for unfinished uploads", store.recall_unfinished)
            await storage.mirror.open(is_continued=self._settings.claimed is not None)
            await storage.publication.read_published()
        return self._claimed.claimed

    async def put_token(self) -> tuple[str, str]:
        """Check that this node reads the owner's claim in storage, and can write there.

        Returns the key and the content of a token, which the owner must find. Raises StorageError
        if the node does not see the storage.
        """
        store, here = self._side.store, self._side.folder
        await self._side.mirror.open(is_continued=True)
        if here is not None and not await threads.call(here.is_dir):
            # Nothing is created there: it would be on this node's own disk.
            raise NotStored("find", str(here), "there is no such folder on this node")
        retry = StorageRetry(
            timeout_s=min(_SEEN_WITHIN_S, self._settings.timeout_s),
            where=store.where,
            tell=lambda text: None,
        )
        return await retry.until_done("look for the storage", store.put_token)

    async def take_token(self, key: str, content: str) -> str:
        """Remove a node's token from the storage. Returns why it is not there, "" if it was.
        Raises StorageError."""
        claims = self._claimed
        if claims is None:
            return "this run has no storage that nodes could see"
        try:
            await self._retry.until_done(
                "look for a node's token", lambda: claims.take_token(key, content)
            )
        except NotStored as error:
            return str(error)
        return ""

    async def check_claim(self) -> None:
        """Raise ClaimLost if another incarnation owns the storage."""
        if self._claimed is not None:
            check = partial(self._claimed.check, at_once=True)
            await self._retry.until_done("check the claim", check)

    # -- checkpoints --------------------------------------------------------------------------

    async def commit(self, order: Commit) -> None:
        """Force a staged checkpoint to the disk, upload it unless it `stays_here`, and report
        that.

        If the checkpoint is missing here, as after a move to another machine, storage may have it.
        """
        directory = self._settings.root / order.folder
        if not await threads.call(directory.exists):
            problem = await self._absence(order.folder)
            self._report(order, problem and f"{directory} is gone, and {problem}")
            return
        seal = partial(self._seal, directory, order.progress)
        written = await self._read_once(order, seal)
        if written is None:
            return
        if self._storage is not None and not order.stays_here:
            await self._upload(Upload, order.folder, written)
        self._report(order)

    async def _upload(self, kind: type[Upload], folder: str, written: Manifest) -> None:
        upload = kind(
            storage=self._side.store,
            committed=self._committed,
            directory=self._settings.root / folder,
            folder=folder,
            written=written,
        )
        await self._retry.until_done(f"upload {folder}", upload.perform)

    async def _read_once(self, order: Commit, seal: Callable[[], Manifest]) -> Manifest | None:
        """The result of `seal`, which forces a checkpoint to the disk. Reports it if its bytes are
        lost."""
        try:
            # A thousand trials may save at once. Only a few checkpoints are read at a time, and
            # the deadline of each begins then.
            async with self._sealing:
                return await self._retry.until_done(
                    f"commit {order.folder}", lambda: threads.call(seal)
                )
        except BytesLost as error:
            self._report(order, str(error))
            return None

    async def look_for(self, order: LookFor) -> None:
        """Report whether storage has the checkpoint of a lost node, whole or not at all.

        If not, it is committed from here if the user has copied it from that node. Its manifest
        shows this by the trial's progress, whose time no other attempt has. Other files do not
        count: they may be of another attempt, or a part of it.
        """
        whole = replace(order.whole, stays_here=False)
        directory = self._settings.root / whole.folder
        if not (problem := await self._absence(whole.folder)):
            self._report(whole)
        elif await threads.call(lambda: _is_sealed_at(directory, whole.progress)):
            await self.commit(whole)
        else:
            self._report(whole, f"the node that had it is lost, and {problem}")

    def _report(self, whole: Commit, lost: str = "") -> None:
        if lost:
            self._send(NotCommitted(name="lost", trial=whole.trial, index=whole.index, why=lost))
        else:
            self._send(Committed(trial=whole.trial, index=whole.index))

    async def upload_share(self, order: UploadShare) -> None:
        """Upload this node's share of a checkpoint of ranks on several nodes, and report its
        files. Those `left_out` are another node's.

        No manifest is written here: on this node, the checkpoint is not whole.
        """
        whole, directory = order.whole, self._settings.root / order.whole.folder
        if not await threads.call(directory.exists):
            self._report(whole, f"{directory} is gone")
            return
        hashed = await self._read_once(whole, lambda: self._hashed(directory))
        if hashed is None:
            return
        files = {name: fact for name, fact in hashed.files.items() if name not in order.left_out}
        await self._upload(ShareUpload, whole.folder, replace(hashed, files=files))
        self._send(
            Shared(
                trial=whole.trial,
                index=whole.index,
                files=files,
                empty_folders=hashed.empty_folders,
            )
        )

    async def complete(self, order: Complete) -> None:
        """Write the manifest of a checkpoint whose shares nodes have uploaded, and report that."""
        claims, folder = self._claimed, order.whole.folder
        assert claims is not None
        made = Manifest(
            files=order.files,
            empty_folders=tuple(order.empty_folders),
            progress=order.whole.progress,
        )
        try:
            await self._retry.until_done(
                f"complete {folder}", lambda: complete(claims, folder, made)
            )
        except NotStored as error:
            self._report(order.whole, str(error))
        else:
            self._report(order.whole)

    async def seal(self, order: Commit) -> None:
        """Give a checkpoint that will not be uploaded its manifest, so that it can be used if the
        user copies it. Raises StorageError or OSError."""
        directory = self._settings.root / order.folder
        if directory.is_dir() and not (directory / MANIFEST_NAME).exists():
            await threads.call(partial(self._seal, directory, order.progress))

    async def _absence(self, folder: str) -> str:
        """Why the checkpoint is not complete in storage; "" if it is."""
        try:
            await self._retry.until_done(
                f"look for {folder}", lambda: self._look_in_storage(folder)
            )
        except (NotStored, ManifestMismatch) as error:
            return str(error)
        return ""

    def _seal(self, directory: Path, progress: TrialProgress) -> Manifest:
        """Force a checkpoint to the disk, and write the manifest last."""
        return manifest.write(directory, self._hashed(directory), progress=progress)

    def _hashed(self, directory: Path) -> Manifest:
        """Force the checkpoint's name to the disk, which staging has only renamed. Then hash the
        files and force them to the disk."""
        with os_errors("commit", str(directory)):
            for above in (directory.parent, self._settings.root):
                fsync_dir(above)
        return manifest.hash_directory(directory, on_file=lambda count: moved_to("commit", count))

    async def _look_in_storage(self, folder: str) -> None:
        """Raise NotStored or ManifestMismatch unless the checkpoint is complete in storage."""
        if self._storage is None:
            await threads.call(lambda: manifest.verify(self._settings.root / folder))
            return
        await self._find_committed(folder)

    async def _find_committed(self, folder: str) -> tuple[OwnedStore, Remote, bytes]:
        """The storage, a committed checkpoint there, and its manifest as it is. Raises NotStored,
        ManifestMismatch."""
        if self._storage is None:
            raise NotStored("find", folder, "this experiment has no other storage")
        storage = self._storage.store
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
        fetched = target.with_name(f"{TEMPORARY}{unique()}")

        async def get(entry: ObjectInfo, path: Path, algorithm: str | None) -> str:
            there = replace(entry, key=f"{folder}/{entry.key}")
            checksum = await storage.get_hashed(there, path, algorithm)
            moved_to(there.key, 1)
            return checksum

        def replace_target() -> None:
            (fetched / MANIFEST_NAME).write_bytes(written)
            remove_tree(target)
            fetched.rename(target)

        try:
            await threads.call(lambda: target.parent.mkdir(parents=True, exist_ok=True))
            await fetch_files(get, remote, fetched)
            await threads.call(replace_target)
        finally:
            await threads.call(lambda: remove_tree(fetched))

    async def find(self, trial: str, folder: str, first: str) -> list[FoundCheckpoint]:
        """The trial's complete checkpoints in this folder of the storage, newest first, down to
        the one named `first`.

        Skips those whose manifest does not say how far the trial had come. Raises StorageError.
        """
        return await self._retry.until_done(
            f"look for checkpoints in {folder}", lambda: self._find(trial, folder, first)
        )

    async def _find(self, trial: str, folder: str, first: str) -> list[FoundCheckpoint]:
        if self._storage is None:
            return []
        storage = self._storage.store
        sizes: dict[str, dict[str, int]] = {}
        for entry in await storage.list(folder):
            name, _, inside = entry.key.removeprefix(f"{folder}/").partition("/")
            is_new = _in_order(name) >= _in_order(first)
            if inside and is_new and self._settings.is_checkpoint(name):
                sizes.setdefault(name, {})[inside] = entry.size
        if not sizes:
            await storage.check(at_once=True)  # it may be an empty mount point
        found: list[FoundCheckpoint] = []
        for name in sorted(sizes, key=_in_order, reverse=True):
            try:
                data = await storage.read(f"{folder}/{name}/{MANIFEST_NAME}")
                made = Manifest.from_bytes(data, f"{folder}/{name}")
            except (NotStored, ManifestMismatch):
                continue
            progress = made.progress
            if progress is None or progress.trial_id != trial:
                continue
            if not made.differences(sizes[name]):
                found.append(
                    FoundCheckpoint(
                        folder=name,
                        iteration=progress.iteration,
                        time_total_s=progress.time_total_s,
                        files=len(made.files),
                        size_bytes=made.total_bytes,
                    )
                )
        return found

    async def problem_with(self, folder: str, *, committed: bool) -> str:
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

    # -- removals -----------------------------------------------------------------------------

    def mark_for_removal(self, folders: Sequence[str]) -> None:
        """Mark checkpoints for removal from storage, after a head that no longer names them is
        published."""
        if self._storage is not None and not self.is_of_node:
            self._pending_removal += folders

    def take_pending_removals(self) -> tuple[str, ...]:
        """Take the marked checkpoints: a publication that is ordered now does not name them."""
        pending, self._pending_removal = tuple(self._pending_removal), []
        return pending

    async def remove_here(self, folders: Sequence[str] = ()) -> None:
        """Remove superseded checkpoints here. Missing ones are fine, and one that a process reads
        is removed later."""
        await self._here.remove(folders)

    async def remove_stored(self, folders: Sequence[str]) -> None:
        """Remove checkpoints from storage that no head there names. Raises ClaimLost."""
        if self._storage is not None:
            await self._storage.publication.remove_superseded()
            await self._storage.removals.remove(folders)

    async def tidy(self) -> None:
        """Retry the failed removals for the last time."""
        await self._here.remove(at_last=True)
        if self._storage is not None:
            await self._storage.removals.remove(at_last=True)

    @property
    def left(self) -> list[str]:
        """A line for each superseded checkpoint that remains, with the reason."""
        there = () if self._storage is None else self._storage.removals.left
        return [*self._here.left, *there]

    # -- records and artifacts ----------------------------------------------------------------

    async def publish(self, end: Position, begins: int) -> None:
        """Make everything in the journal before `end` visible in storage.

        `begins` is the segment in which this experiment begins. Raises StorageError.
        """
        if self._storage is not None:
            await self._storage.publication.extend(end, begins)
            self._send(Published(segment=end.segment, offset=end.offset))

    async def send_files(self, trials: Sequence[str] | None, *, artifacts: bool) -> None:
        """Upload the artifacts of the trials in these folders (None: all), on a node also their
        output. Raises StorageError."""
        if self.is_of_node:
            await self._side.mirror.send_records(trials)
            if artifacts:
                await threads.call(lambda: self._rename_scripts(trials or ()))
        if artifacts:
            await self.send_artifacts(trials)

    async def send_artifacts(self, trials: Sequence[str] | None) -> int:
        """Upload the artifacts of the trials in these folders (None: all), and return the number
        of files sent. Raises StorageError."""
        return 0 if self._storage is None else await self._storage.mirror.send_artifacts(trials)

    def _rename_scripts(self, trials: Sequence[str]) -> None:
        """Give a file with the name of one that only the controller writes, from the journal,
        another one: here it is the script's own."""
        for trial in trials:
            with suppress(FileNotFoundError), os.scandir(self._settings.root / trial) as entries:
                for entry in entries:
                    if self._settings.is_remade(f"{trial}/{entry.name}") and entry.is_file():
                        os.replace(entry.path, f"{entry.path}{OF_SCRIPT}")

    def note_ended(self, fingerprints: Mapping[str, str], *, are_written: bool) -> None:
        """The trials of these folders have ended; see `EndedFolders`."""
        if self._storage is not None:
            ended = self._storage.mirror.ended
            (ended.note_written if are_written else ended.note_ended)(fingerprints)

    async def hand_over(self, trial: str) -> None:
        """Send the files of the trial in this folder for the last time. On a node they are removed
        then: if the trial comes back, storage has newer ones. Its checkpoints stay. Raises
        StorageError."""
        if self.is_of_node:
            await self._send_last(trial)
            await threads.call(lambda: self._remove_files(self._settings.root / trial))
        elif self._storage is not None:
            await self._storage.mirror.hand_over(trial)

    async def release_trial(self, trial: str) -> None:
        """Send the files of a trial that has ended, and remove its folder from the node. Raises
        StorageError."""
        await self._send_last(trial)
        await threads.call(lambda: remove_tree(self._settings.root / trial))

    async def _send_last(self, trial: str) -> None:
        await self.send_files([trial], artifacts=True)
        self._side.mirror.indexes.forget(trial)

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

    async def download_artifacts(self, trial: str, *, all_files: bool = True) -> None:
        """Download the files that the trial in this folder has written on another machine: its
        output, and all others unless only that is wanted.

        Raises StorageError.
        """
        if self._storage is not None:
            is_wanted = None if all_files else self._settings.is_record
            store, mirror = self._storage.store, self._storage.mirror
            await restore_artifacts(trial, self._settings, store, self._retry, mirror, is_wanted)

    @property
    def left_out(self) -> str:
        """The files whose current content is not in storage, with reasons; "" if none."""
        return "" if self._storage is None else self._storage.mirror.skipped.listed()

    async def close(self) -> None:
        """Close the storage, end uploads of earlier incarnations that were not continued, and
        remove copies that killed readers of remote checkpoints left."""
        if self._storage is not None:
            with suppress(StorageError, TimeoutError):  # the next incarnation will find them
                async with asyncio.timeout(_TIDY_S):
                    await self._storage.store.abandon_recalled()
        if self._claimed is not None:
            await self._claimed.close()
        await threads.call(remove_unread)


def _in_order(name: str) -> tuple[int, str]:
    """The sort key of a name: numbers have at least six digits, and longer ones are greater."""
    return len(name), name


def _is_sealed_at(directory: Path, progress: TrialProgress) -> bool:
    """True if this is the whole checkpoint of a trial with this progress. Reads every byte."""
    try:
        return manifest.verify(directory, deep=True).progress == progress
    except (NotStored, ManifestMismatch):
        return False
