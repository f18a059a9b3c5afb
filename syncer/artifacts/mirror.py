"""Keeps an experiment's files in storage equal to those on this machine: records always, artifacts
on request.

Each call scans the folders (`scan.py`), compares them with their indexes (`stored_index.py`), lets
`settings.py` decide what to send and remove, and does it, with a bounded number of files at once.
An error with one file does not stop the others. `restore_artifacts` downloads the files of a trial
that another machine has written.

A run of 100,000 trials has 100,000 folders, and each has an index of its own. When a trial has
ended, holdfast writes nothing more into its folder. So the folder is scanned once more, and then
noted in one file (`EndedFolders`), with the controller's fingerprint of the trial. If the trial
runs again, the fingerprint is another one, and the note no longer counts. Neither does it once
another machine has owned the storage.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.scan import (
    Scope,
    StableRead,
    all_folders,
    checksum_of,
    covers,
    file_stat,
    is_unchanged,
    read_stable,
    reason,
    scan,
)
from holdfast.syncer.artifacts.settings import (
    ENDED_NAME,
    LISTING_NAME,
    Changes,
    FolderScan,
    StoredFile,
    UploaderSettings,
    changes,
    folders_above,
    missing_in_storage,
    skipped_text,
)
from holdfast.syncer.artifacts.stored_index import (
    FolderIndex,
    ListedFile,
    LocalIndex,
    listing_bytes,
    read_listing,
)
from holdfast.syncer.errors import NotStored, StorageRefused
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, replace_file, unique
from holdfast.syncer.files.tree import regular_descriptor
from holdfast.syncer.stores.owned_store import Claim, OwnedStore, unconfirmed
from holdfast.syncer.stores.retry import StorageRetry
from holdfast.syncer.stores.store import ObjectInfo, check_key, for_each, parse_json, read_small

# The file is written anew if it has this many lines that do not count, and more than others.
_STALE_LINES = 1000


class EndedFolders:
    """The folders of ended trials by name, each with the fingerprint of its trial."""

    def __init__(self, root: Path) -> None:
        self._path = root / ENDED_NAME
        self._since = 0
        self._noted: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        # Those whose files are all written.
        self._written: dict[str, str] = {}

    def open(self, since: int) -> None:
        """Read the notes of the range of claims that began with this one. Raises OSError."""
        self._since = since
        lines = [*_read(self._path)]
        self._noted = {folder: mark for began, folder, mark in lines if began == since}
        stale = len(lines) - len(self._noted)
        if stale > _STALE_LINES and stale > len(self._noted):
            replace_file(self._path, self._lines(self._noted))

    def note_ended(self, fingerprints: Mapping[str, str]) -> None:
        """The trials of these folders have ended, or run again if the fingerprint is ""."""
        self._ended.update(fingerprints)
        for folder in fingerprints:
            self._written.pop(folder, None)

    def note_written(self, fingerprints: Mapping[str, str]) -> None:
        """All files of these trials are written."""
        self._written.update(fingerprints)

    def is_whole(self, folder: str) -> bool:
        """True if storage has the folder as it is."""
        fingerprint = self._ended.get(folder)
        return bool(fingerprint) and self._noted.get(folder) == fingerprint

    def unnoted(self) -> dict[str, str]:
        """The folders that will be whole once storage has what a scan finds from now on."""
        noted = self._noted
        return {name: mark for name, mark in self._written.items() if noted.get(name) != mark}

    def note(self, fingerprints: Mapping[str, str]) -> None:
        """Storage has these folders as they were when the trials had these fingerprints.

        It is not forced to the disk: a line that a power cut loses costs another scan.
        """
        if not fingerprints:
            return
        self._noted |= fingerprints
        with suppress(OSError):  # the next run scans them once more
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = regular_descriptor(self._path, flags)
            with open(descriptor, "ab") as file:
                file.write(self._lines(fingerprints))

    def _lines(self, fingerprints: Mapping[str, str]) -> bytes:
        """Each begins with a line's end, because a crash may have cut off the line before."""
        return b"".join(_line(self._since, *one) for one in fingerprints.items())


def _line(since: int, folder: str, fingerprint: str) -> bytes:
    text = json.dumps([since, folder, fingerprint]).encode()
    return b"\n%08x %s" % (zlib.crc32(text), text)


def _read(path: Path) -> Iterator[tuple[int, str, str]]:
    """The lines that are whole. Raises OSError."""
    try:
        data = read_small(path)
    except FileNotFoundError:
        return
    for line in data.splitlines():
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            continue
        with suppress(ValueError):
            match parse_json(text):
                case [int(since), str(folder), str(fingerprint)]:
                    yield since, folder, fingerprint
                case _:
                    pass


# Files in progress at once: at most 64 MiB of them are in memory, and connections stay free for
# checkpoints.
_AT_ONCE = 16
_SAVE_EVERY_S = 5.0
_REPORT_EVERY_S = 1.0
# Up to this many refused files may be the files' fault; more are the storage's.
_MOST_REFUSED = 20
_NOTHING = Changes(blocking=(), to_read=(), deleted=())
HELD_BACK = "it is being overwritten, and is held back until it stops changing"
# It is normal to meet a file once while it is being written.
_TOLD_AFTER = 3
_LISTED = 20


class Mirror:
    """Mirrors files. `warn` is called with skipped files. `on_progress` is called in long syncs
    with the files done, all files, the bytes done and all bytes; at the end with four zeros."""

    def __init__(
        self,
        settings: UploaderSettings,
        storage: OwnedStore,
        retry: StorageRetry,
        *,
        warn: Callable[[str], None],
        on_progress: Callable[[int, int, int, int], None],
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._retry = retry
        self._on_progress = on_progress
        self.indexes = Indexes(settings.root, warn)
        self.ended = EndedFolders(settings.root)
        self.skipped = SkippedFiles(warn)

    async def open(self, *, is_continued: bool) -> None:
        """Start after the storage is claimed, with this tree's index of it if that is still
        valid."""
        claim = self._storage.claimed
        assert claim is not None
        await self.indexes.open(claim, is_continued=is_continued)
        with suppress(OSError):  # without the notes, each folder is scanned once more
            await threads.call(partial(self.ended.open, self.indexes.since))

    async def send_records(self, trials: Sequence[str] | None = None) -> None:
        """Upload changed records of the trials in these folders (None: of every folder that may
        differ from storage). Raises StorageError."""
        ended = self.ended.unnoted()
        folders = await self._send("records", trials)
        names = [one.index.name for one in folders if one.is_whole and one.index.name in ended]
        await threads.call(partial(self.ended.note, {name: ended[name] for name in names}))

    async def send_artifacts(self, trials: Sequence[str] | None) -> int:
        """Upload the artifacts of the trials in these folders (None: all); return the number of
        files sent.

        Raises StorageError.
        """
        if not self._settings.artifacts:
            return 0
        return sum(len(folder.sent) for folder in await self._send("artifacts", trials))

    async def hand_over(self, folder: str) -> None:
        """Send the files of the trial in this folder, and then no more of them but the records
        that this machine writes again. Raises StorageError."""
        await self.send_records([folder])
        await self.send_artifacts([folder])
        index = await self.indexes.of(folder)
        index.give_away(self._settings.is_remade)
        await self.indexes.save(index)

    # -- planning --

    async def _send(self, scope: Scope, trials: Sequence[str] | None) -> list[FolderSync]:
        """Sync the folders, and return them. Raises StorageError."""
        scanned = await self._retry.until_done(
            f"look for {scope}", lambda: threads.call(partial(self._scan, scope, trials))
        )
        folders = [self._plan(scope, one) for one in scanned]
        unchecked = [folder for folder in folders if not folder.index.is_checked]
        await for_each(self._check, unchecked, at_once=_AT_ONCE)
        sync = Sync(scope, [folder for folder in folders if _has_work(scope, folder)])
        sync.count()
        try:
            await self._perform(sync)
        finally:
            for folder in sync.folders:
                folder.index.end_sending(folder.changes.to_read)
                await self.indexes.save(folder.index)
            self._conclude(sync, folders)
        return folders

    def _scan(self, scope: Scope, trials: Sequence[str] | None) -> list[ScannedFolder]:
        """Scan all folders in one thread call, because there may be ten thousand."""
        names = all_folders(self._settings)
        if trials is not None:
            wanted = set(trials)
            names = [name for name in names if name in wanted]
        elif scope == "records":
            names = [name for name in names if not self.ended.is_whole(name)]
        return [
            ScannedFolder(
                folder=name,
                scan=scan(self._settings, name, scope),
                loaded_index=self.indexes.read_unknown(name),
            )
            for name in names
        ]

    def _plan(self, scope: Scope, scanned: ScannedFolder) -> FolderSync:
        """Decide what to do for a folder."""
        index = self.indexes.known(scanned.folder, scanned.loaded_index)
        if index.has_file and not scanned.scan.has_index:
            # The folder was lost, and perhaps created again. The user did not remove its files.
            index.clear()
        found = scanned.scan
        if index.is_elsewhere and self._settings.on_nodes:
            remade = {k: stat for k, stat in found.files.items() if self._settings.is_remade(k)}
            found = replace(found, files=remade)
        decided = changes(index.stored, found, covers(self._settings, scope))
        if not index.has_file:
            decided = replace(decided, blocking=(), deleted=())
        return FolderSync(index, found, decided, dict(found.skipped))

    async def _check(self, folder: FolderSync) -> None:
        """Check once per folder whether storage still has what an earlier process sent."""
        index = folder.index
        sizes = await self._retry.until_done(
            f"list {index.name}", lambda: self._storage.sizes(index.name)
        )
        index.compare(sizes)
        to_read = changes(index.stored, folder.scan).to_read
        folder.changes = replace(folder.changes, to_read=to_read)

    # -- performing --

    async def _perform(self, sync: Sync) -> None:
        for folder in sync.folders:
            folder.index.begin_sending(folder.changes.to_read)
            await self.indexes.save(folder.index)
            await self._remove(folder, folder.changes.blocking)
        files = [(folder, key) for folder in sync.folders for key in folder.changes.to_read]
        await for_each(lambda file: self._send_file(sync, *file), files, at_once=_AT_ONCE)
        await for_each(partial(self._finish, sync), sync.folders, at_once=_AT_ONCE)

    async def _send_file(self, sync: Sync, folder: FolderSync, key: str) -> None:
        await self._try_to_send(sync, folder, key)
        await self._count_file(sync, folder, key)

    async def _try_to_send(self, sync: Sync, folder: FolderSync, key: str) -> None:
        """Read one file, and send it if storage does not have the same content."""
        try:
            await self._send_stable(folder, key)
        except FileNotFoundError:
            pass  # the user has removed it meanwhile
        except OSError as error:
            folder.skipped[key] = f"it cannot be read ({reason(error)})"
        except (StorageRefused, NotStored) as error:
            # Some servers answer 404 to a name that they do not support.
            if await threads.call(partial(os.path.lexists, self._settings.root / key)):
                folder.skipped[key] = str(error)
                sync.refused += 1
            if sync.refused > _MOST_REFUSED:
                raise

    async def _send_stable(self, folder: FolderSync, key: str) -> None:
        """Send a state that the file really had, or note why there is none."""
        path = self._settings.root / key
        read = partial(read_stable, path, copies=self._settings.root / folder.index.name)
        # A second time if a large file began to change while it was sent.
        for _ in range(2):
            content = await threads.call(read)
            if content is None:
                folder.skipped[key] = HELD_BACK
                return
            try:
                await self._put_if_changed(folder, key, content)
            finally:
                content.close()
            if not isinstance(content.source, Path) or content.is_copy:
                return
            if await threads.call(partial(is_unchanged, path, content.stat)):
                return
            folder.index.mark_uncertain([key])
        folder.skipped[key] = "it changed while it was sent, and will be sent again"

    async def _put_if_changed(self, folder: FolderSync, key: str, content: StableRead) -> None:
        index = folder.index
        stored = index.stored.get(key)
        if stored is None or stored.checksum != content.checksum:
            index.mark_uncertain([key])
            index.is_listed &= self._settings.is_record(key)
            await self._retry.until_done(f"upload {key}", lambda: self._put(key, content.source))
            folder.sent.add(key)
        index.record(key, StoredFile(content.stat, content.checksum, content.is_settled))

    async def _put(self, key: str, source: bytes | Path) -> None:
        if isinstance(source, bytes):
            await self._storage.put(key, source)
        else:
            await self._storage.upload(key, source)

    async def _remove(self, folder: FolderSync, keys: Sequence[str]) -> None:
        """Remove files from storage, and from the index."""
        if not keys:
            return
        index = folder.index
        if not all(map(self._settings.is_record, keys)):
            await self._listed_elsewhere(index)  # read while the index still has the removed files
            index.is_listed = False
        await self._retry.until_done(
            f"remove from {index.name}", lambda: self._storage.delete(keys)
        )
        index.remove(keys)

    async def _finish(self, sync: Sync, folder: FolderSync) -> None:
        """Remove deleted files from storage last, so that a renamed file is there all the time."""
        index = folder.index
        await self._remove(folder, folder.changes.deleted)
        if sync.scope == "records":
            return
        if folder.sent and index.name:
            await self._retry.until_done(
                f"confirm {index.name}", lambda: self._confirm(sync, folder)
            )
        if not index.is_listed:
            await self._put_listing(index)

    async def _confirm(self, sync: Sync, folder: FolderSync) -> None:
        """Check that storage has the files: some servers confirm and keep nothing.

        Raises StorageUnavailable.
        """
        sizes = await self._storage.sizes(folder.index.name)
        missing = missing_in_storage(folder.index.stored, sizes, sorted(folder.sent))
        folder.index.mark_uncertain(missing)
        folder.sent.difference_update(missing)
        for key in missing:
            await self._try_to_send(sync, folder, key)
        if missing:
            raise unconfirmed(missing[0])

    async def _put_listing(self, index: FolderIndex) -> None:
        """Replace the listing of the folder's artifacts in storage."""
        prefix = f"{index.name}/" if index.name else ""
        listed = await self._listed_elsewhere(index) | {
            key.removeprefix(prefix): ListedFile(
                size=file.stat.size, checksum=file.checksum, mtime_ns=file.stat.mtime_ns
            )
            for key, file in index.stored.items()
            if not self._settings.is_record(key)
        }
        key, data = f"{prefix}{LISTING_NAME}", listing_bytes(listed)
        await self._retry.until_done(
            f"upload {key}", lambda: self._storage.put_and_verify(key, data)
        )
        index.is_listed, index.is_saved = True, False

    async def _listed_elsewhere(self, index: FolderIndex) -> dict[str, ListedFile]:
        """The files that another machine has listed and this one did not download; they are still
        in storage."""
        key = f"{index.name}/{LISTING_NAME}" if index.name else LISTING_NAME
        if index.listed_elsewhere is None:
            try:
                data = await self._retry.until_done(f"read {key}", lambda: self._storage.read(key))
                index.listed_elsewhere = read_listing(data)
            except (NotStored, ValueError):
                index.listed_elsewhere = {}
        return index.listed_elsewhere

    # -- reporting --

    async def _count_file(self, sync: Sync, folder: FolderSync, key: str) -> None:
        """Count a file as done; now and then report the progress, and save the index."""
        now = asyncio.get_running_loop().time()
        self._retry.moves()
        sync.files += 1
        sync.bytes += folder.scan.files[key].size
        if sync.scope == "artifacts" and now - sync.reported_at >= _REPORT_EVERY_S:
            sync.reported_at = now
            self._report_progress(sync)
        if now - sync.saved_at >= _SAVE_EVERY_S:
            sync.saved_at = now
            await self.indexes.save(folder.index)

    def _report_progress(self, sync: Sync) -> None:
        done = f"{sync.files:,} of {sync.total_files:,} files are done"
        self._retry.note("send the artifacts", done)
        self._on_progress(sync.files, sync.total_files, sync.bytes, sync.total_bytes)

    def _conclude(self, sync: Sync, folders: Sequence[FolderSync]) -> None:
        """End the report of the progress, and note the files that were skipped."""
        if sync.scope == "artifacts":
            self._retry.note("send the artifacts", "")
            if sync.reported_at:
                self._on_progress(0, 0, 0, 0)
        self.skipped.note({f"{sync.scope} {one.index.name}": one.skipped for one in folders})


def may_be_behind(settings: UploaderSettings) -> bool:
    """True if artifacts differ from those in storage, as far as this tree knows.

    Raises OSError.
    """
    if not settings.artifacts:
        return False
    index_files, is_artifact = LocalIndex(settings.root), covers(settings, "artifacts")
    index_files.open_read_only()
    for name in all_folders(settings):
        index, scanned = index_files.load(name), scan(settings, name, "artifacts")
        if not index.is_listed or changes(index.stored, scanned, is_artifact) != _NOTHING:
            return True
    return False


def _has_work(scope: Scope, folder: FolderSync) -> bool:
    lacks_listing = scope == "artifacts" and not folder.index.is_listed
    return lacks_listing or folder.changes != _NOTHING


class Indexes:
    """The indexes of a tree by folder: read at first use, and saved so that no death of a process
    loses them. `warn` is called once if they cannot be written."""

    def __init__(self, root: Path, warn: Callable[[str], None]) -> None:
        self._files = LocalIndex(root)
        self._warn = warn
        self._known: dict[str, FolderIndex] = {}
        self._saving = asyncio.Lock()
        self._has_warned = False

    async def open(self, claim: Claim, *, is_continued: bool) -> None:
        """Start under this claim, with the tree's own index of storage if it is still valid."""
        try:
            index = await threads.call(partial(self._files.open, claim, is_continued=is_continued))
        except OSError as error:
            self._warn_unsaved(error)
            index = FolderIndex("")
        self._known = {"": index}

    @property
    def since(self) -> int:
        """The first of the consecutive claims under which this tree's indexes were written."""
        return self._files.since

    async def of(self, folder: str) -> FolderIndex:
        """The index of a folder."""
        loaded = await threads.call(partial(self.read_unknown, folder))
        return self.known(folder, loaded)

    def read_unknown(self, folder: str) -> FolderIndex | None:
        """Read the index of a folder, in a thread; None if it is known already."""
        if folder in self._known:
            return None
        with suppress(OSError):  # it does no harm
            self._files.remove_leftover(folder)
        return self._files.load(folder)

    def known(self, folder: str, loaded: FolderIndex | None) -> FolderIndex:
        """The index of a folder, given what `read_unknown` has returned for it."""
        if loaded is not None:
            self._known.setdefault(folder, loaded)
        return self._known[folder]

    def forget(self, folder: str) -> None:
        """The folder's files were removed here, and stay in storage."""
        self._known.pop(folder, None)

    async def save(self, index: FolderIndex) -> None:
        """Write the index of a folder to the kernel."""
        async with self._saving:
            if index.is_saved:
                return
            index.is_saved = True  # later changes are saved next time
            try:
                await threads.call(partial(self._files.save, index.copy()))
                index.has_file = True
            except OSError as error:
                index.is_saved = False
                self._warn_unsaved(error)

    def _warn_unsaved(self, error: OSError) -> None:
        """Without the index, a later restore only uploads files unnecessarily."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the index of files in storage cannot be written: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFolder:
    """The files of a folder, and its index if that was not loaded before."""

    folder: str
    scan: FolderScan
    loaded_index: FolderIndex | None


@dataclass(slots=True)
class FolderSync:
    """One folder in one sync. `sent` has the keys that were put."""

    index: FolderIndex
    scan: FolderScan
    changes: Changes
    skipped: dict[str, str]
    sent: set[str] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        """True if storage has each file as it was found."""
        stored = self.index.stored
        found = (stored.get(key) for key in self.scan.files)
        return not self.skipped and all(file is not None and file.checksum for file in found)


@dataclass(slots=True)
class Sync:
    """The progress of a sync, in files and bytes."""

    scope: Scope
    folders: Sequence[FolderSync]
    files: int = 0
    bytes: int = 0
    refused: int = 0
    saved_at: float = 0.0
    reported_at: float = 0.0
    total_files: int = 0
    total_bytes: int = 0

    def count(self) -> None:
        reads = [(folder, key) for folder in self.folders for key in folder.changes.to_read]
        self.total_files = len(reads)
        self.total_bytes = sum(folder.scan.files[key].size for folder, key in reads)


class SkippedFiles:
    """Files that are not persisted: reported once each to `tell`, and listed at the end."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._now: dict[str, Mapping[str, str]] = {}
        self._held_back: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()

    def note(self, looked: Mapping[str, Mapping[str, str]]) -> None:
        """Record the files, by key, that the latest scan of each folder skipped."""
        self._now.update(looked)
        held_back = {
            key for found in self._now.values() for key in found if found[key] == HELD_BACK
        }
        self._held_back = {key: self._held_back.get(key, 0) for key in held_back}
        new: dict[str, str] = {}
        for found in looked.values():
            new |= {key: why for key, why in found.items() if self._is_news(key, why)}
        self._told |= set(new.items())
        if new:
            self._tell(f"not uploaded: {skipped_text(new)}")

    def _is_news(self, key: str, why: str) -> bool:
        if why != HELD_BACK:
            return (key, why) not in self._told
        self._held_back[key] += 1
        return self._held_back[key] == _TOLD_AFTER

    def listed(self) -> str:
        """The files whose current content is not in storage; "" if there are none."""
        left = {key: why for found in self._now.values() for key, why in found.items()}
        if not left:
            return ""
        which = f"these {len(left):,} files are" if len(left) > 1 else "this file is"
        return f"{which} not in storage as here: {skipped_text(left, _LISTED)}"


async def restore_artifacts(
    folder: str,
    settings: UploaderSettings,
    storage: OwnedStore,
    retry: StorageRetry,
    mirror: Mirror,
    is_wanted: Callable[[str], bool] | None = None,
) -> None:
    """Download the files of the trial in `folder` that were never here, and check them. If
    `is_wanted` is given, only those keys.

    Existing local files stay unchanged, unless the trial ran on a node after them. Files that the
    user removed here are not downloaded, nor are checkpoints, and records that are written from
    the journal. Raises StorageError.
    """
    index = await mirror.indexes.of(folder)
    entries, listing = await retry.until_done(
        f"look for the files of {folder}", partial(_look, folder, storage)
    )
    wanted = [
        entry
        for entry in entries
        if (is_wanted is None or is_wanted(entry.key))
        and _should_restore(entry.key, folder, settings, index)
    ]
    home = _Home(settings=settings, folder=folder, index=index, listing=listing)
    skipped: dict[str, str] = {}

    async def bring(entry: ObjectInfo) -> None:
        try:
            await retry.until_done(
                f"bring {entry.key}", lambda: _bring(entry, home, storage, skipped)
            )
        except NotStored:
            return  # removed after the listing
        except OSError as error:
            skipped[entry.key] = f"it cannot be written here ({reason(error)})"

    try:
        await for_each(bring, wanted, at_once=_AT_ONCE)
        if is_wanted is None and index.is_elsewhere:
            index.is_elsewhere = index.is_saved = False
    finally:
        await mirror.indexes.save(index)
        mirror.skipped.note({f"bring {folder}": skipped})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    settings: UploaderSettings
    folder: str
    index: FolderIndex
    listing: _Listing

    def path(self, key: str) -> Path:
        return self.settings.root / key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The last machine's list of its artifacts, and its time (seconds since 1970, None if
    unknown)."""

    files: Mapping[str, ListedFile]
    written_at: float | None

    def problem(self, name: str, entry: ObjectInfo, checksum: str) -> str:
        """The problem with a download; "" if there is none.

        An object that is newer than the listing was uploaded by a machine that was lost before it
        wrote another listing.
        """
        listed = self.files.get(name)
        if listed is None or not listed.checksum or listed.checksum == checksum:
            return ""
        put_at, listed_at = entry.modified, self.written_at
        if put_at is None or listed_at is None or put_at > listed_at:
            return ""
        return "its bytes in storage differ from those that were sent"


async def _look(folder: str, storage: OwnedStore) -> tuple[list[ObjectInfo], _Listing]:
    entries = await storage.list(folder)
    key = f"{folder}/{LISTING_NAME}"
    found = next((entry for entry in entries if entry.key == key), None)
    listing = _Listing(files={}, written_at=None)
    if found is not None:
        try:
            files = read_listing(await storage.read(key))
        except ValueError:  # without it only the checksums are missing
            files = {}
        listing = _Listing(files=files, written_at=found.modified)
    return entries, listing


def _should_restore(key: str, folder: str, settings: UploaderSettings, index: FolderIndex) -> bool:
    """Whether to download the key. Names come from the network: one with `..` would be written
    elsewhere."""
    try:
        check_key(key)
    except ValueError:
        return False
    if not key.startswith(f"{folder}/") or key in index.stored:
        return False
    above = list(folders_above(key))
    if any(settings.is_ours(name, is_folder=True) for name in above):
        return False
    # A trial's folder must not replace one of holdfast's files either.
    files = [key, *(name for name in above if name.startswith(f"{folder}/"))]
    if any(settings.is_ours(name, is_folder=False) or settings.is_remade(name) for name in files):
        return False
    path = settings.root / key
    return not os.path.lexists(path) or (index.is_elsewhere and path.is_file())


async def _bring(
    entry: ObjectInfo, home: _Home, storage: OwnedStore, skipped: dict[str, str]
) -> None:
    name = entry.key.removeprefix(f"{home.folder}/")
    partial_file = home.path(home.folder) / f"{TEMPORARY}{unique()}"
    try:
        await storage.download(entry.key, partial_file)
        checksum = await threads.call(partial(checksum_of, partial_file))
        if problem := home.listing.problem(name, entry, checksum):
            skipped[entry.key] = problem
            return
        listed = home.listing.files.get(name)
        mtime_ns = listed.mtime_ns if listed is not None else None
        await threads.call(partial(_place, partial_file, home, entry.key, mtime_ns))
    finally:
        partial_file.unlink(missing_ok=True)
    stat = file_stat(os.stat(home.path(entry.key)))
    home.index.record(entry.key, StoredFile(stat, checksum, is_settled=False))


def _place(source: Path, home: _Home, key: str, mtime_ns: int | None) -> None:
    """Move the file into place. Raises OSError, also if a link leads out of the trial's folder."""
    target = home.path(key)
    real, trial = os.path.realpath(target.parent), os.path.realpath(home.path(home.folder))
    if os.path.commonpath([real, trial]) != trial:
        raise OSError(errno.EXDEV, "a link leads out of the trial's folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    if mtime_ns is not None:
        os.utime(source, ns=(mtime_ns, mtime_ns))
    os.replace(source, target)
