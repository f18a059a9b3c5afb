"""Stores for tests: one in memory, and one that fails at a chosen operation."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.syncer.errors import AlreadyStored, NotStored, StorageError, StorageUnavailable
from holdfast.syncer.stores.store import (
    ObjectInfo,
    PutResult,
    PutsAtOnce,
    Store,
    check_key,
    folder_prefix,
    source_size,
)

R = TypeVar("R")


class MemoryStore(PutsAtOnce):
    """Objects in a dict, which tests may read and change."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects

    @property
    def where(self) -> str:
        return "memory"

    @property
    def has_folders(self) -> bool:
        return False

    @property
    def conditional_puts(self) -> bool:
        return True

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        data = source if isinstance(source, bytes) else _content(source)
        if create_only and check_key(key) in self.objects:
            raise AlreadyStored("put", key, "there is such an object already")
        self.objects[check_key(key)] = data
        return PutResult(size=len(data), etag=_etag(data))

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        data = await self.read(source.key)
        if source.etag not in {None, _etag(data)}:
            raise NotStored("copy", source.key, "another object is there now")
        return await self.put(key, data)

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        return entry.etag == _etag(_content(source))

    async def get(self, key: str, target: Path) -> int:
        return _write(target, await self.read(key))

    async def read(self, key: str) -> bytes:
        try:
            return self.objects[check_key(key)]
        except KeyError as error:
            raise NotStored("read", key, "there is no such object") from error

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        start = folder_prefix(prefix)
        return [self._entry(key) for key in sorted(self.objects) if key.startswith(start)]

    async def head(self, key: str) -> ObjectInfo | None:
        return self._entry(key) if check_key(key) in self.objects else None

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(check_key(key), None)

    async def close(self) -> None:
        """Does nothing: nothing is open, and the objects stay."""

    def _entry(self, key: str) -> ObjectInfo:
        data = self.objects[key]
        return ObjectInfo(key=key, size=len(data), etag=_etag(data))


class Fault(StrEnum):
    """What happens at the chosen operation."""

    FAIL = "fail"  # it is not performed, and raises
    LOSE_ANSWER = "lose answer"  # it is performed, and raises all the same
    PRETEND = "pretend"  # a put is not performed, and answered with success; others fail
    STALL = "stall"  # it waits until `release` or cancellation, then is performed


class FaultyStore:
    """Counts the operations on another store, and disturbs the `at`-th (the first is 1).

    With `lasting` all later ones are disturbed, too: the store went away, or the process was
    killed there. `error` is what is raised. `log` has each operation with its key, in order.
    """

    def __init__(
        self,
        inner: Store,
        *,
        at: int = 0,
        fault: Fault = Fault.FAIL,
        error: StorageError | None = None,
        lasting: bool = False,
    ) -> None:
        self.inner = inner
        self.log: list[tuple[str, str]] = []
        self.stalled = asyncio.Event()
        self._released = asyncio.Event()
        self._at, self._fault, self._lasting = at, fault, lasting
        self._error = error or StorageUnavailable("put", "faulty", "injected fault")

    @property
    def where(self) -> str:
        return self.inner.where

    @property
    def has_folders(self) -> bool:
        return self.inner.has_folders

    @property
    def conditional_puts(self) -> bool | None:
        return self.inner.conditional_puts

    @property
    def operations(self) -> int:
        """The number of operations begun."""
        return len(self.log)

    def disturb(self, *, at: int, fault: Fault, lasting: bool = False) -> None:
        """Choose another operation."""
        self._at, self._fault, self._lasting = at, fault, lasting

    def release(self) -> None:
        """Let stalled operations continue."""
        self._released.set()

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        return await self._disturbed(
            "put",
            key,
            lambda: self.inner.put(key, source, create_only=create_only, resumable=resumable),
            pretended=PutResult(size=source_size(source)),
        )

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        return await self._disturbed(
            "copy",
            key,
            lambda: self.inner.copy(source, key),
            pretended=PutResult(size=source.size, etag=source.etag),
        )

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        return await self.inner.holds(entry, source)

    async def unfinished(self, prefix: str = "") -> list[str]:
        return await self._disturbed("unfinished", prefix, lambda: self.inner.unfinished(prefix))

    async def abandon(self, prefix: str = "") -> None:
        await self.inner.abandon(prefix)

    async def get(self, key: str, target: Path) -> int:
        return await self._disturbed("get", key, lambda: self.inner.get(key, target))

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        return await self._disturbed(
            "get", entry.key, lambda: self.inner.get_hashed(entry, target, algorithm)
        )

    async def read(self, key: str) -> bytes:
        return await self._disturbed("read", key, lambda: self.inner.read(key))

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        return await self._disturbed(
            "list", prefix, lambda: self.inner.list(prefix, leftovers=leftovers)
        )

    async def head(self, key: str) -> ObjectInfo | None:
        return await self._disturbed("head", key, lambda: self.inner.head(key))

    async def delete(self, keys: Iterable[str]) -> None:
        """Each key is a separate operation: a store may fail between two of them."""
        for key in keys:
            await self._disturbed("delete", key, partial(self.inner.delete, [key]))

    async def close(self) -> None:
        await self.inner.close()

    async def _disturbed(
        self,
        operation: str,
        key: str,
        perform: Callable[[], Awaitable[R]],
        pretended: R | None = None,
    ) -> R:
        self.log.append((operation, key))
        count = len(self.log)
        if not (count == self._at or (self._lasting and 0 < self._at < count)):
            return await perform()
        match self._fault:
            case Fault.FAIL:
                raise self._error
            case Fault.LOSE_ANSWER:
                await perform()
                raise self._error
            case Fault.PRETEND:
                if pretended is None:
                    raise self._error
                return pretended
            case Fault.STALL:
                self.stalled.set()
                await self._released.wait()
                return await perform()


def _content(path: Path) -> bytes:
    return path.read_bytes()


def _write(path: Path, data: bytes) -> int:
    return path.write_bytes(data)


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class Place:
    """Replaces a `Location` with this store."""

    public = "memory"
    local_path = None

    def __init__(self, store: Store) -> None:
        self._store = store

    def open_store(self) -> Store:
        return self._store


class UnsteadyStore(FaultyStore):
    """The last of this many operations fails, alternately before and after it is performed."""

    def __init__(self, inner: Store, *, every: int) -> None:
        super().__init__(inner)
        self._every = every
        self._count = 0

    async def _disturbed(
        self,
        operation: str,
        key: str,
        perform: Callable[[], Awaitable[R]],
        pretended: R | None = None,
    ) -> R:
        self._count += 1
        if self._count % (2 * self._every) == self._every:
            raise StorageUnavailable(operation, key, "injected before it was done")
        done = await perform()
        if self._count % (2 * self._every) == 0:
            raise StorageUnavailable(operation, key, "injected after it was done")
        return done
