"""Downloads a remote folder to this machine and verifies it.

A run may remove or replace the folder meanwhile: the reader gets one complete content, or an error
that says so.
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
    os_errors,
)
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import remove_tree
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME
from holdfast.syncer.stores.hashed import GetHashed, hashing
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo, Store, check_key, for_each

R = TypeVar("R")

_AT_ONCE = 16
_LATEST_INTERRUPT_S = 0.25
_TRIES = 3
_REMOVED = "it was removed meanwhile"
_WRITTEN = "it was rewritten during each attempt"


class FolderChanged(StorageError):
    """The content of a folder has changed since the download began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The objects to download, and the manifest if there is one."""

    entries: tuple[ObjectInfo, ...]
    manifest: Manifest | None

    @property
    def identity(self) -> str:
        """A name for this content: other bytes under the same keys have another name."""
        known = self.manifest.to_bytes() if self.manifest is not None else b""
        facts = repr([(e.key, e.size, e.etag, e.modified) for e in self.entries])
        return hashlib.sha256(known + facts.encode()).hexdigest()[:32]


def with_store(location: Location, perform: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
    """Open a location's store, call `perform`, and close it: for callers without an event loop.

    Also works in a thread with a running event loop (Jupyter), which it blocks.
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
        return _run(session())
    return _in_a_thread(session)


def _run(session: Coroutine[Any, Any, R]) -> R:
    """Run it on a loop that needs a quarter less CPU for a download than asyncio's own."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(session)


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
            future = thread.submit(lambda: _run(noted()))
            # A signal just before the wait does not interrupt it, but is seen after it.
            while not wait([future], timeout=_LATEST_INTERRUPT_S).done:
                continue
            return future.result()
        except KeyboardInterrupt:
            # An interrupted notebook cell would otherwise wait for the whole download.
            interrupted = True
            for loop, task in begun:
                if task is not None:
                    with suppress(RuntimeError):  # it has already ended
                        loop.call_soon_threadsafe(task.cancel)
            raise


def on_what_is_there(location: Location, perform: Callable[[Remote], R]) -> R:
    """Look at a folder and call `perform`; repeat if its content has changed meanwhile.

    Raises CheckpointGone, DirectoryMissing, ManifestMismatch or another StorageError.
    """
    for _ in range(_TRIES - 1):
        with suppress(FolderChanged):
            return perform(_look_at(location))
    return perform(_look_at(location))


def bring(location: Location, target: Path) -> None:
    """Download a folder into the new directory `target` and verify it.

    Raises like `on_what_is_there`; then the caller removes `target`.
    """

    def download(remote: Remote) -> None:
        remove_tree(target)
        with_store(location, lambda store: fetch(store, remote, target))

    on_what_is_there(location, download)


def _look_at(location: Location) -> Remote:
    """Look at a folder. A holdfast checkpoint without manifest is incomplete or being removed.

    Checkpoints of other programs have no manifest.
    """
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
        return False  # without permission to look, assume that the folder is complete


async def look(store: Store) -> Remote:
    """List the folder and read its manifest.

    Raises DirectoryMissing if it is empty, and ManifestMismatch if it is incomplete.
    """
    entries = tuple(await store.list())
    if not entries:
        raise DirectoryMissing("open", store.where, "this folder is empty")
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
    """Download into the new directory `target` and verify; the manifest is not kept.

    Raises CheckpointGone or FolderChanged if the content is no longer there, or another
    StorageError; then the caller removes `target`.
    """
    try:
        await _download(store, remote, target)
    except StorageError:
        with suppress(StorageUnavailable):  # the first error is enough
            await _check_same(store, remote)
        raise
    if remote.manifest is None:  # no checksum would show a change
        await _check_same(store, remote)


async def _download(store: Store, remote: Remote, target: Path) -> None:
    await fetch_files(hashing(store), remote, target)


async def fetch_files(get: GetHashed, remote: Remote, target: Path) -> None:
    """Download the files into the new directory `target`, and compare them with the manifest: the
    bytes of each as soon as it is there, and at the end whether all are.

    `get` downloads an object to a new file, and returns its checksum. Raises StorageError.
    """
    known = remote.manifest
    wanted = [entry for entry in remote.entries if entry.key != MANIFEST_NAME]
    empty = known.empty_folders if known is not None else ()
    _make_folders(target, [*(entry.key.rpartition("/")[0] for entry in wanted), *empty])
    problems: list[str] = []

    async def fetch_one(entry: ObjectInfo) -> None:
        path = target / entry.key
        if known is None or known.checksum_of(entry.key) is None:
            await get(entry, path, None)
        elif problem := known.change(entry.key, await get(entry, path, manifests.ALGORITHM)):
            problems.append(problem)

    await for_each(fetch_one, wanted, at_once=_AT_ONCE)
    if problems:
        raise ManifestMismatch(str(target), sorted(problems))
    if known is not None:
        await threads.call(lambda: manifests.check(target, known))


async def _check_same(store: Store, remote: Remote) -> None:
    try:
        now = await look(store)
    except DirectoryMissing as error:
        raise missing(store.where, "download", _REMOVED) from error
    except ManifestMismatch as error:  # it was complete when the download began
        raise FolderChanged("download", store.where, _WRITTEN) from error
    if now.manifest is None and remote.manifest is not None:
        raise missing(store.where, "download", _REMOVED)
    if now.identity != remote.identity:
        raise FolderChanged("download", store.where, _WRITTEN)


def _check_remote_key(key: str, where: str) -> None:
    # Names come from the network: one with .. would be written outside the target.
    try:
        check_key(key)
    except ValueError as error:
        raise UnusableFile("open", where, f"it has an object named {key!r}") from error


def _make_folders(target: Path, names: list[str]) -> None:
    with os_errors("download to", str(target)):
        os.mkdir(target)
        for name in sorted({name for name in names if name}):
            os.makedirs(target / check_key(name), exist_ok=True)
