"""Bringing a remote folder to this machine, verified.

A run may remove it meanwhile, or put another content there: the reader gets the one or the other,
whole, or an error that says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint import manifest as manifests
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.checkpoint.reading import INCOMPLETE, missing
from holdfast.syncer.errors import (
    DirectoryMissing,
    ManifestMismatch,
    StorageError,
    StorageUnavailable,
    UnusableFile,
    from_os_error,
)
from holdfast.syncer.files.durable import remove_tree
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo, Store, check_key, for_each

R = TypeVar("R")

_AT_ONCE = 16
_LATEST_INTERRUPT_S = 0.25
_TRIES = 3
_REMOVED = "it was removed meanwhile"
_WRITTEN = "it was written anew meanwhile, again and again"


class FolderChanged(StorageError):
    """The content of a folder is another one than when the download began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What is to be fetched: the objects, and the manifest if there is one."""

    entries: tuple[ObjectInfo, ...]
    manifest: Manifest | None

    @property
    def identity(self) -> str:
        """A name for this content: other bytes under the same keys have another."""
        known = self.manifest.to_bytes() if self.manifest is not None else b""
        facts = repr([(e.key, e.size, e.etag, e.modified) for e in self.entries])
        return hashlib.sha256(known + facts.encode()).hexdigest()[:32]


def with_store(location: Location, perform: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
    """Open the store of a place, perform, close it: for callers that have no event loop.

    Works also in a thread that runs one already (Jupyter); it waits all the same.
    """

    async def session() -> R:
        store = location.open_store()
        try:
            return await perform(store)
        finally:
            await store.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(session())
    return _in_a_thread(session)


def _in_a_thread(session: Callable[[], Coroutine[Any, Any, R]]) -> R:
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []
    interrupted = False

    async def noted() -> R:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        if interrupted:
            raise asyncio.CancelledError
        return await session()

    with ThreadPoolExecutor(1) as thread:
        try:
            future = thread.submit(lambda: asyncio.run(noted()))
            # A signal in the moment before the wait begins does not end it, but is seen after it.
            while not wait([future], timeout=_LATEST_INTERRUPT_S).done:
                continue
            return future.result()
        except KeyboardInterrupt:
            # A cell of a notebook is interrupted, and would else wait for the whole download.
            interrupted = True
            for loop, task in begun:
                if task is not None:
                    with suppress(RuntimeError):  # it has ended already
                        loop.call_soon_threadsafe(task.cancel)
            raise


def on_what_is_there(location: Location, perform: Callable[[Remote], R]) -> R:
    """Look at a folder and perform; again if its content has changed meanwhile.

    Raises CheckpointGone, DirectoryMissing, ManifestMismatch or another StorageError.
    """
    for _ in range(_TRIES - 1):
        with suppress(FolderChanged):
            return perform(_look_at(location))
    return perform(_look_at(location))


def bring(location: Location, target: Path) -> None:
    """Download a folder into the new directory `target` and verify. Raises as above; what is in
    `target` then is the caller's to remove."""

    def download(remote: Remote) -> None:
        remove_tree(target)
        with_store(location, lambda store: fetch(store, remote, target))

    on_what_is_there(location, download)


def _look_at(location: Location) -> Remote:
    """Without its manifest a checkpoint of ours is not whole yet, or no more; one of others never
    had any."""
    try:
        remote = with_store(location, look)
    except DirectoryMissing as error:
        if _is_in_experiment(location):
            raise missing(location.public, "open", error.cause) from error
        raise
    if remote.manifest is None and _is_in_experiment(location):
        raise missing(location.public, "open", INCOMPLETE)
    return remote


def _is_in_experiment(location: Location) -> bool:
    experiment = location.above(2)
    if experiment is None:
        return False
    try:
        return bool(with_store(experiment, lambda store: store.list(CLAIMS)))
    except StorageError:
        return False  # who may look at nothing but the folder is believed that it is whole


async def look(store: Store) -> Remote:
    """List the folder and read its manifest.

    Raises DirectoryMissing if there is nothing, and ManifestMismatch if it is not whole.
    """
    entries = tuple(await store.list())
    if not entries:
        raise DirectoryMissing("open", store.where, "there is nothing in this folder")
    for entry in entries:
        _check_remote_key(entry.key, store.where)
    if not any(entry.key == MANIFEST_NAME for entry in entries):
        return Remote(entries=entries, manifest=None)
    manifest = Manifest.from_bytes(await store.read(MANIFEST_NAME), store.where)
    problems = manifest.differences({entry.key: entry.size for entry in entries})
    if problems:
        raise ManifestMismatch(store.where, problems)
    return Remote(entries=entries, manifest=manifest)


async def fetch(store: Store, remote: Remote, target: Path) -> None:
    """Download into the new directory `target` and verify; our manifest is not kept.

    Raises CheckpointGone or FolderChanged where it is not there any more, or another StorageError;
    what is in `target` then is the caller's to remove.
    """
    try:
        await _download(store, remote, target)
    except StorageError:
        with suppress(StorageUnavailable):  # then the first error tells enough
            await _check_same(store, remote)
        raise
    if remote.manifest is None:  # no checksum would tell
        await _check_same(store, remote)


async def _download(store: Store, remote: Remote, target: Path) -> None:
    import anyio.to_thread

    wanted = [entry.key for entry in remote.entries if entry.key != MANIFEST_NAME]
    empty = remote.manifest.empty_folders if remote.manifest is not None else ()
    _make_folders(target, [*(key.rpartition("/")[0] for key in wanted), *empty])
    await for_each(lambda key: store.get(key, target / key), wanted, at_once=_AT_ONCE)
    if remote.manifest is not None:
        whole = remote.manifest
        await anyio.to_thread.run_sync(lambda: manifests.check(target, whole, deep=True))


async def _check_same(store: Store, remote: Remote) -> None:
    try:
        now = await look(store)
    except DirectoryMissing as error:
        raise missing(store.where, "download", _REMOVED) from error
    except ManifestMismatch as error:  # it was none when the download began
        raise FolderChanged("download", store.where, _WRITTEN) from error
    if now.manifest is None and remote.manifest is not None:
        raise missing(store.where, "download", _REMOVED)
    if now.identity != remote.identity:
        raise FolderChanged("download", store.where, _WRITTEN)


def _check_remote_key(key: str, where: str) -> None:
    # Names come from the network: one with .. in it would be written outside of the target.
    try:
        check_key(key)
    except ValueError as error:
        raise UnusableFile("open", where, f"it holds an object named {key!r}") from error


def _make_folders(target: Path, names: list[str]) -> None:
    try:
        os.mkdir(target)
        for name in sorted({name for name in names if name}):
            os.makedirs(target / check_key(name), exist_ok=True)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            raise from_os_error(error, "download to", str(target)) from error
        raise StorageError("download to", str(target), str(error)) from error
