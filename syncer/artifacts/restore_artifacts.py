"""Downloads a trial's files from another machine into its folder here, before it resumes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.mirror import Mirror
from holdfast.syncer.artifacts.plan import LISTING_NAME, StoredFile, folders_above
from holdfast.syncer.artifacts.scan import file_stat, reason
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.artifacts.stable_read import checksum_of
from holdfast.syncer.artifacts.stored_index import FolderIndex, ListedFile, read_listing
from holdfast.syncer.errors import NotStored
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, unique
from holdfast.syncer.stores.owned_store import OwnedStore
from holdfast.syncer.stores.retry import StorageRetry
from holdfast.syncer.stores.store import ObjectInfo, check_key, for_each

_AT_ONCE = 16


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
