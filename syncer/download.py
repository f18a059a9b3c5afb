"""Bringing a remote folder to this machine, verified."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.syncer import manifest as manifests
from holdfast.syncer.errors import (
    DirectoryMissing,
    ManifestMismatch,
    StorageError,
    UnusableFile,
    from_os_error,
)
from holdfast.syncer.location import Location
from holdfast.syncer.manifest import Manifest
from holdfast.syncer.store import Entry, Store, check_key, for_each
from holdfast.syncer.tree import MANIFEST_NAME

R = TypeVar("R")

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What is to be fetched: the objects, and the manifest if there is one."""

    entries: tuple[Entry, ...]
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
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(session())).result()


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

    Raises StorageError; what is in `target` then is the caller's to remove.
    """
    import anyio.to_thread

    wanted = [entry.key for entry in remote.entries if entry.key != MANIFEST_NAME]
    empty = remote.manifest.empty_folders if remote.manifest is not None else ()
    _make_folders(target, [*(key.rpartition("/")[0] for key in wanted), *empty])
    await for_each(lambda key: store.get(key, target / key), wanted, at_once=_AT_ONCE)
    if remote.manifest is not None:
        whole = remote.manifest
        await anyio.to_thread.run_sync(lambda: manifests.check(target, whole, deep=True))


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
