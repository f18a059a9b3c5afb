"""Keeps an experiment's files in storage equal to those on this machine: records always, artifacts
on request.

`holdfast.syncer.artifacts.plan` decides what to do. This module does it, with a bounded number of
files at once; an error with one file does not stop the others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.syncer.artifacts.plan import LISTING_NAME, Changes, Known, changes, missing_there
from holdfast.syncer.artifacts.scan import Scope, covers, folders, reason, scan
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.artifacts.stable_read import StableRead, is_unchanged, read_stable
from holdfast.syncer.artifacts.stored_index import (
    FolderIndex,
    Listed,
    LocalIndex,
    listing_bytes,
    read_listing,
)
from holdfast.syncer.artifacts.sync_round import HELD_BACK, FolderSync, Look, SkippedFiles, Sync
from holdfast.syncer.errors import NotStored, StorageRefused
from holdfast.syncer.files import threads
from holdfast.syncer.stores.owned_store import OwnedStore, unconfirmed
from holdfast.syncer.stores.retry import StorageRetry
from holdfast.syncer.stores.store import for_each

# Files in progress at once: at most 64 MiB of them are in memory, and connections stay free for
# checkpoints.
_AT_ONCE = 16
_SAVE_EVERY_S = 5.0
_TELL_EVERY_S = 1.0
# Up to this many refused files may be the files' fault; more are the storage's.
_MOST_REFUSED = 20
_NOTHING = Changes(first=(), read=(), gone=())


class Mirror:
    """Mirrors files. `tell` is called with skipped files and the progress of long syncs."""

    def __init__(
        self,
        settings: UploaderSettings,
        storage: OwnedStore,
        retry: StorageRetry,
        tell: Callable[[list[Any]], None],
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._retry = retry
        self._tell = tell
        self._local = LocalIndex(settings.root)
        self._folders: dict[str, FolderIndex] = {}
        self._writing = asyncio.Lock()
        self._told_unwritten = False
        self.skipped = SkippedFiles(lambda text: tell(["warning", text]))

    async def open(self, *, is_continued: bool) -> None:
        """Start after the storage is claimed, with this tree's index of it if that is still
        valid."""
        epoch = int(self._storage.epoch.rpartition("/")[2])
        try:
            own = await threads.call(partial(self._local.open, epoch, is_continued=is_continued))
        except OSError as error:
            self._tell_unwritten(error)
            own = FolderIndex("")
        self._folders = {"": own}

    async def send_records(self) -> None:
        """Upload changed records. Raises StorageError."""
        await self._send("records", None)

    async def send_artifacts(self, wanted: Sequence[str] | None) -> int:
        """Upload the artifacts of the trials in these folders (None: all); return the number of
        files sent.

        Raises StorageError.
        """
        return await self._send("artifacts", wanted) if self._settings.artifacts else 0

    async def index_of(self, folder: str) -> FolderIndex:
        """The index of a folder: its files in storage."""
        if folder not in self._folders:
            loaded = await threads.call(partial(self._local.load, folder))
            self._folders.setdefault(folder, loaded)
        return self._folders[folder]

    async def save(self, index: FolderIndex) -> None:
        """Write the index of a folder to the kernel, so that no death of a process loses it."""
        async with self._writing:
            if index.is_written:
                return
            index.is_written = True  # later changes are written next time
            try:
                await threads.call(partial(self._local.save, index.copy()))
                index.has_file = True
            except OSError as error:
                index.is_written = False
                self._tell_unwritten(error)

    def _tell_unwritten(self, error: OSError) -> None:
        """Warn once. Without the index, a later restore only uploads files unnecessarily."""
        if not self._told_unwritten:
            self._told_unwritten = True
            self._tell(["warning", f"the index of files in storage cannot be written: {error}"])

    # -- planning --

    async def _send(self, scope: Scope, wanted: Sequence[str] | None) -> int:
        looked = await self._retry.until_done(
            f"look for {scope}", lambda: threads.call(partial(self._look, scope, wanted))
        )
        parts = [self._part(scope, look) for look in looked]
        unchecked = [part for part in parts if not part.index.is_checked]
        await for_each(self._check, unchecked, at_once=_AT_ONCE)
        busy = [part for part in parts if part.changes != _NOTHING or _is_unlisted(scope, part)]
        sync = Sync(scope, busy)
        sync.count()
        try:
            await self._perform(sync)
        finally:
            for part in busy:
                part.index.end(part.changes.read)
                await self.save(part.index)
            self._conclude(sync, parts)
        return sum(len(part.sent) for part in busy)

    def _look(self, scope: Scope, wanted: Sequence[str] | None) -> list[Look]:
        """Scan all folders in one thread call, because there may be ten thousand."""
        there = folders(self._settings)
        chosen = there if wanted is None else [name for name in there if name in set(wanted)]
        return [
            Look(
                folder=folder,
                found=scan(self._settings, folder, scope),
                index=None if folder in self._folders else self._local.load(folder),
            )
            for folder in chosen
        ]

    def _part(self, scope: Scope, look: Look) -> FolderSync:
        if look.index is not None:
            self._folders.setdefault(look.folder, look.index)
        index = self._folders[look.folder]
        if index.has_file and not look.found.has_index:
            # The folder was lost, and perhaps created again. The user did not remove its files.
            index.lose()
        decided = changes(index.known, look.found, covers(self._settings, scope))
        if not index.has_file:
            decided = replace(decided, first=(), gone=())
        return FolderSync(index, look.found, decided, dict(look.found.skipped))

    async def _check(self, part: FolderSync) -> None:
        """Check once per folder whether storage still has what an earlier process sent."""
        index = part.index
        index.check(await self._present(index.name))
        part.changes = replace(part.changes, read=changes(index.known, part.found).read)

    async def _present(self, folder: str) -> dict[str, int]:
        listed = await self._retry.until_done(f"list {folder}", lambda: self._storage.list(folder))
        return {entry.key: entry.size for entry in listed}

    # -- performing --

    async def _perform(self, sync: Sync) -> None:
        for part in sync.parts:
            part.index.begin(part.changes.read)
            await self.save(part.index)
            await self._remove(part, part.changes.first)
        files = [(part, key) for part in sync.parts for key in part.changes.read]
        await for_each(lambda file: self._send_file(sync, *file), files, at_once=_AT_ONCE)
        await for_each(partial(self._finish, sync), sync.parts, at_once=_AT_ONCE)

    async def _send_file(self, sync: Sync, part: FolderSync, key: str) -> None:
        await self._try_to_send(sync, part, key)
        await self._advance(sync, part, key)

    async def _try_to_send(self, sync: Sync, part: FolderSync, key: str) -> None:
        """Read one file, and send it if storage does not have the same content."""
        try:
            await self._send_as_it_is(part, key)
        except FileNotFoundError:
            pass  # the user has removed it meanwhile
        except OSError as error:
            part.skipped[key] = f"it cannot be read ({reason(error)})"
        except (StorageRefused, NotStored) as error:
            # Some servers answer 404 to a name that they do not support.
            if await threads.call(partial(os.path.lexists, self._settings.root / key)):
                part.skipped[key] = str(error)
                sync.refused += 1
            if sync.refused > _MOST_REFUSED:
                raise

    async def _send_as_it_is(self, part: FolderSync, key: str) -> None:
        path = self._settings.root / key
        # A second time if a large file began to change while it was sent.
        for _ in range(2):
            state = await threads.call(
                partial(read_stable, path, copies=self._settings.root / part.index.name)
            )
            if state is None:
                part.skipped[key] = HELD_BACK
                return
            try:
                await self._send_state(part, key, state)
            finally:
                state.close()
            if not isinstance(state.source, Path) or state.is_copy:
                return
            if await threads.call(partial(is_unchanged, path, state.facts)):
                return
            part.index.doubt([key])
        part.skipped[key] = "it changed while it was sent, and will be sent again"

    async def _send_state(self, part: FolderSync, key: str, state: StableRead) -> None:
        index, source = part.index, state.source
        before = index.known.get(key)
        if before is None or before.checksum != state.checksum:
            index.doubt([key])
            index.is_listed &= self._settings.is_record(key)
            await self._retry.until_done(f"upload {key}", lambda: self._put(key, source))
            part.sent.add(key)
        index.sent(key, Known(state.facts, state.checksum, state.is_settled))

    async def _put(self, key: str, source: bytes | Path) -> None:
        if isinstance(source, bytes):
            await self._storage.put(key, source)
        else:
            await self._storage.upload(key, source)

    async def _remove(self, part: FolderSync, keys: Sequence[str]) -> None:
        if not keys:
            return
        if not all(map(self._settings.is_record, keys)):
            await self._earlier(part.index)  # before the removed files are forgotten
            part.index.is_listed = False
        await self._retry.until_done(
            f"remove from {part.index.name}", lambda: self._storage.delete(keys)
        )
        part.index.forget(keys)

    async def _finish(self, sync: Sync, part: FolderSync) -> None:
        """Remove deleted files from storage last, so that a renamed file is there all the time."""
        await self._remove(part, part.changes.gone)
        if sync.scope == "records":
            return
        if part.sent and part.index.name:
            await self._retry.until_done(
                f"confirm {part.index.name}", lambda: self._confirm(sync, part)
            )
        if not part.index.is_listed:
            await self._put_listing(part.index)

    async def _confirm(self, sync: Sync, part: FolderSync) -> None:
        """Check that storage has the files: some servers confirm and keep nothing.

        Raises StorageUnavailable.
        """
        listed = {e.key: e.size for e in await self._storage.list(part.index.name)}
        missing = missing_there(part.index.known, listed, sorted(part.sent))
        part.index.doubt(missing)
        part.sent.difference_update(missing)
        for key in missing:
            await self._try_to_send(sync, part, key)
        if missing:
            raise unconfirmed(missing[0])

    async def _put_listing(self, index: FolderIndex) -> None:
        above = f"{index.name}/" if index.name else ""
        listed = await self._earlier(index) | {
            key.removeprefix(above): Listed(
                size=known.facts.size, checksum=known.checksum, mtime_ns=known.facts.mtime_ns
            )
            for key, known in index.known.items()
            if not self._settings.is_record(key)
        }
        key, data = f"{above}{LISTING_NAME}", listing_bytes(listed)
        await self._retry.until_done(
            f"upload {key}", lambda: self._storage.put_for_sure(key, data)
        )
        index.is_listed, index.is_written = True, False

    async def _earlier(self, index: FolderIndex) -> dict[str, Listed]:
        """The files that another machine has listed and this one did not download; they are still
        in storage."""
        key = f"{index.name}/{LISTING_NAME}" if index.name else LISTING_NAME
        if index.earlier is None:
            try:
                data = await self._retry.until_done(f"read {key}", lambda: self._storage.read(key))
                index.earlier = read_listing(data)
            except (NotStored, ValueError):
                index.earlier = {}
        return index.earlier

    # -- reporting --

    async def _advance(self, sync: Sync, part: FolderSync, key: str) -> None:
        now = asyncio.get_running_loop().time()
        self._retry.moves()
        sync.files += 1
        sync.bytes += part.found.files[key].size
        if sync.scope == "artifacts" and now - sync.told_at >= _TELL_EVERY_S:
            sync.told_at = now
            self._tell_progress(sync)
        if now - sync.saved_at >= _SAVE_EVERY_S:
            sync.saved_at = now
            await self.save(part.index)

    def _tell_progress(self, sync: Sync) -> None:
        done = f"{sync.files:,} of {sync.total_files:,} files are done"
        self._retry.note("send the artifacts", done)
        self._tell(["progress", sync.files, sync.total_files, sync.bytes, sync.total_bytes])

    def _conclude(self, sync: Sync, parts: Sequence[FolderSync]) -> None:
        if sync.scope == "artifacts":
            self._retry.note("send the artifacts", "")
            if sync.told_at:
                self._tell(["progress", 0, 0, 0, 0])
        self.skipped.note({f"{sync.scope} {part.index.name}": part.skipped for part in parts})


def may_be_behind(settings: UploaderSettings) -> bool:
    """Whether artifacts differ from those in storage, as far as this tree knows.

    Raises OSError.
    """
    if not settings.artifacts:
        return False
    local, ours = LocalIndex(settings.root), covers(settings, "artifacts")
    local.look_back()
    for folder in folders(settings):
        index, found = local.load(folder), scan(settings, folder, "artifacts")
        if not index.is_listed or changes(index.known, found, ours) != _NOTHING:
            return True
    return False


def _is_unlisted(scope: Scope, part: FolderSync) -> bool:
    return scope == "artifacts" and not part.index.is_listed
