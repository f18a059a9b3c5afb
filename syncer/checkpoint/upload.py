"""Uploads a checkpoint: keeps objects that are there, copies known files, sends the rest.

An object counts as ours only if the store proves that it has the bytes of our manifest; a file
that is unchanged since a committed checkpoint is copied from there, inside the storage.

Ranks on several nodes have different files. Each node uploads its share (`ShareUpload`), and the
owner of the storage, which has the facts about all files, writes the manifest (`complete`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from dataclasses import field
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.manifest import FileFact, Manifest
from holdfast.syncer.errors import (
    AlreadyStored,
    ManifestMismatch,
    NotStored,
    StorageError,
    StorageUnavailable,
)
from holdfast.syncer.files.tree import MANIFEST_NAME, METADATA_NAME
from holdfast.syncer.stores.owned_store import ClaimLost, OwnedStore, unconfirmed
from holdfast.syncer.stores.retry import moved_on
from holdfast.syncer.stores.store import ObjectInfo, PutResult

# With a thousand files each, the newest checkpoints of fifty trials: 15 MB.
_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class _Source:
    """An object to copy from, and the trial whose newest checkpoint it belongs to."""

    trial: str
    entry: ObjectInfo


class CommittedFiles:
    """Finds a file's bytes in storage by size and checksum.

    Remembers only the newest checkpoint of each trial, so that memory does not grow with the
    checkpoints.
    """

    def __init__(self) -> None:
        self._sources: dict[FileFact, _Source] = {}
        self._of_trial: dict[str, set[FileFact]] = {}
        self._loaded: set[str] = set()

    def remember(self, folder: str, written: Manifest, entries: Iterable[ObjectInfo]) -> None:
        """Remember the objects of a committed checkpoint."""
        trial = folder.rpartition("/")[0]
        for known in list(self._of_trial.get(trial, ())):
            self.forget(known)
        for entry in entries:
            name = entry.key.removeprefix(f"{folder}/")
            fact = written.files.get(name)
            # A file that the user may change later is not copied from.
            is_fixed = fact is not None and fact.checksum is not None and name != METADATA_NAME
            if is_fixed and fact is not None and entry.size == fact.size:
                self.forget(fact)
                self._sources[fact] = _Source(trial, entry)
                self._of_trial.setdefault(trial, set()).add(fact)
        while len(self._sources) > _REMEMBERED:
            self.forget(next(iter(self._sources)))

    def find(self, fact: FileFact) -> ObjectInfo | None:
        source = self._sources.get(fact)
        return None if source is None else source.entry

    def forget(self, fact: FileFact) -> None:
        if (source := self._sources.pop(fact, None)) is not None:
            facts = self._of_trial[source.trial]
            facts.discard(fact)
            if not facts:
                del self._of_trial[source.trial]

    async def load(self, storage: OwnedStore, trial: str) -> None:
        """Once per trial: find in storage what an earlier run has committed."""
        if storage.is_new or trial in self._loaded:
            return
        entries = await storage.list(trial)
        markers = [entry.key for entry in entries if entry.name == MANIFEST_NAME]
        if markers:
            folder = max(markers).rpartition("/")[0]
            below = [entry for entry in entries if entry.key.startswith(f"{folder}/")]
            try:
                # After the listing: a process that replaces a checkpoint removes its manifest
                # first.
                content = await storage.read(f"{folder}/{MANIFEST_NAME}")
                self.remember(folder, Manifest.from_bytes(content, folder), below)
            except (NotStored, ManifestMismatch):
                pass  # it is being removed, or is not a checkpoint
        self._loaded.add(trial)


@dataclass(slots=True, kw_only=True)
class Upload:
    """The upload of one checkpoint; if performed again, it continues from where it was."""

    storage: OwnedStore
    committed: CommittedFiles
    directory: Path
    folder: str
    written: Manifest
    _done: dict[str, str | None] = field(default_factory=dict)

    async def perform(self) -> None:
        """Upload all files, then the manifest. Raises StorageError."""
        storage, content = self.storage, self.written.to_bytes()
        marker = f"{self.folder}/{MANIFEST_NAME}"
        await storage.check()
        present: dict[str, ObjectInfo] = {}
        if not storage.is_first_upload_to(self.folder):
            present = {e.key: e for e in await storage.list(self.folder, leftovers=True)}
        if marker in present:
            if not self._missing(present.values()) and await storage.read(marker) == content:
                self.committed.remember(self.folder, self.written, present.values())
                return
            await storage.delete([marker])
        ours = await self._ours(present)
        await storage.delete(sorted(present.keys() - {marker} - ours))
        await self.committed.load(storage, self.folder.rpartition("/")[0])
        await self._bring_files(ours)
        if not storage.conditional_puts:
            await storage.check(at_once=True)
        entries = await self._confirm()
        is_new = all(entry.key != marker for entry in entries)
        await self._put_marker(content, is_new=is_new)
        self.committed.remember(self.folder, self.written, entries)

    async def _ours(self, present: Mapping[str, ObjectInfo]) -> set[str]:
        """The keys of the objects that have the bytes of our manifest."""
        found: set[str] = set()

        async def look(name: str, there: ObjectInfo) -> None:
            # An object with the ETag that this upload got counts, even if it is not an MD5 sum.
            is_done = there.etag is not None and self._done.get(there.key) == there.etag
            if is_done or await self.storage.holds(there, self.directory / name):
                found.add(there.key)

        async with asyncio.TaskGroup() as tasks:
            for name in self.written.files:
                if there := present.get(f"{self.folder}/{name}"):
                    tasks.create_task(look(name, there))
        return found

    async def _bring_files(self, there: Set[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, fact in self.written.files.items():
                if (key := f"{self.folder}/{name}") not in there:
                    tasks.create_task(self._bring(key, name, fact))

    async def _bring(self, key: str, name: str, fact: FileFact) -> None:
        if await self._try_to_copy(key, name, fact):
            return
        try:
            stored = await self.storage.upload_new(key, self.directory / name)
        except AlreadyStored as error:
            await self.storage.check(at_once=True)
            cause = "a suspended older run has uploaded it meanwhile"
            # A retry finds out whose it is.
            raise StorageUnavailable("upload", key, cause) from error
        self._note_done(key, stored)

    def _note_done(self, key: str, stored: PutResult) -> None:
        """Note an uploaded file; uploading it again after a failure is not progress."""
        if key not in self._done:
            moved_on()
        self._done[key] = stored.etag

    async def _try_to_copy(self, key: str, name: str, fact: FileFact) -> bool:
        source = self.committed.find(fact)
        if source is None or source.key == key:
            return False
        try:
            stored = await self.storage.copy(source, key)
        except ClaimLost:
            raise
        except StorageError:
            # The source was superseded and removed, or the store cannot copy: upload the bytes.
            self.committed.forget(fact)
            return False
        if stored.etag != source.etag:
            # A large object that was uploaded in parts has another ETag when it is copied as a
            # whole.
            copy = ObjectInfo(key=key, size=stored.size, etag=stored.etag)
            if not await self.storage.holds(copy, self.directory / name):
                self.committed.forget(fact)
                return False
        self._note_done(key, stored)
        return True

    async def _confirm(self) -> list[ObjectInfo]:
        """The objects as the storage lists them. Raises StorageUnavailable if one is missing."""
        entries = await self.storage.list(self.folder)
        if missing := self._missing(entries):
            raise unconfirmed(f"{self.folder}: {'; '.join(missing)}")
        return entries

    def _missing(self, entries: Iterable[ObjectInfo]) -> list[str]:
        sizes = {entry.key.removeprefix(f"{self.folder}/"): entry.size for entry in entries}
        return self.written.differences(sizes)

    async def _put_marker(self, content: bytes, *, is_new: bool) -> None:
        await put_marker(self.storage, self.folder, content, is_new=is_new)


async def put_marker(
    storage: OwnedStore, folder: str, content: bytes, *, is_new: bool = False
) -> None:
    """Write the manifest of a checkpoint whose files are in storage. Raises StorageError.

    `is_new`: the caller has checked the claim, if the store has no conditional puts, and then
    listed the folder, which has no manifest.
    """
    # With conditional puts, this upload cannot replace a newer run's.
    if not storage.conditional_puts and not is_new:
        await storage.check(at_once=True)
    await storage.abandon(folder)
    # Without conditional puts `create_only` means another look, and we have just listed the
    # folder: it took a fifth of a small checkpoint's requests.
    has_looked = is_new and storage.conditional_puts is False
    try:
        await storage.put_and_verify(
            f"{folder}/{MANIFEST_NAME}", content, create_only=not has_looked
        )
    except AlreadyStored as error:
        # The manifest of a newer run, or of an older one that uploaded meanwhile, or our own if
        # the answer was lost.
        await storage.check(at_once=True)
        if await storage.read(f"{folder}/{MANIFEST_NAME}") != content:
            cause = "another run has uploaded its own meanwhile"
            raise StorageUnavailable("upload", folder, cause) from error


@dataclass(slots=True, kw_only=True)
class ShareUpload(Upload):
    """The upload of one node's share; `written` has its files. It touches no others."""

    async def perform(self) -> None:
        """Upload the files. Raises StorageError."""
        storage, marker = self.storage, f"{self.folder}/{MANIFEST_NAME}"
        await storage.check()
        present = {entry.key: entry for entry in await storage.list(self.folder)}
        if marker in present:
            if self._is_part_of(await storage.read(marker)):
                return  # the owner has completed it meanwhile
            await storage.delete([marker])
        ours = await self._ours(present)
        own = {f"{self.folder}/{name}" for name in self.written.files}
        await storage.delete(sorted((present.keys() & own) - ours))
        await self.committed.load(storage, self.folder.rpartition("/")[0])
        await self._bring_files(ours)
        await self._confirm()

    def _is_part_of(self, content: bytes) -> bool:
        try:
            whole = Manifest.from_bytes(content, self.folder)
        except ManifestMismatch:
            return False
        return self.written.files.items() <= whole.files.items()


async def complete(storage: OwnedStore, folder: str, whole: Manifest) -> None:
    """Write the manifest of a checkpoint whose shares are in storage.

    Removes what an earlier attempt has left there. Raises NotStored if a file is missing, or
    another StorageError.
    """
    content, marker = whole.to_bytes(), f"{folder}/{MANIFEST_NAME}"
    present = {entry.key: entry for entry in await storage.list(folder, leftovers=True)}
    sizes = {key.removeprefix(f"{folder}/"): entry.size for key, entry in present.items()}
    if problems := whole.differences(sizes):
        await storage.check(at_once=True)
        raise NotStored("complete", folder, "; ".join(problems))
    if marker in present:
        if await storage.read(marker) == content:
            return
        await storage.delete([marker])
    known = {f"{folder}/{name}" for name in whole.files} | {marker, f"{folder}/{METADATA_NAME}"}
    await storage.delete(sorted(present.keys() - known))
    await put_marker(storage, folder, content)
