"""The seam to storage: put, get, list and delete of objects below one place.

Keys are relative posix paths. The folder of a key exists by the key; empty folders do not.
Every implementation passes tests/syncer/stores/test_store_contract.py.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from holdfast.dataclass import dataclass
from holdfast.names import inner_path
from holdfast.syncer.errors import StorageError, innermost

T = TypeVar("T")

# A deletion may remove the folder of a file that is about to be put, and the put makes it again.
# With four processes that put and delete in one folder without a pause, five times are not enough.
FOLDER_ATTEMPTS = 100
# A body may break off, and an object may be replaced while it is read.
DOWNLOAD_ATTEMPTS = 3
# How long an operation may take that transfers no large object.
LOOKUP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """What the store confirmed: the size in bytes, and its ETag where it has them."""

    size: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing. `modified` is in seconds since 1970 UTC, by the store's clock."""

    key: str
    size: int
    etag: str | None = None
    modified: float | None = None

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


class Store(Protocol):
    """Objects below one place. All methods raise StorageError and no other exception.

    Every operation has a deadline of its own; an operation that is cancelled leaves the old
    object or the new one, never a part that a reader could take for whole.
    """

    @property
    def where(self) -> str:
        """The place for people to read; no credentials."""
        ...

    @property
    def has_folders(self) -> bool:
        """Whether folders are real: what is interrupted may leave one empty, or a part of a file
        that is no object."""
        ...

    @property
    def conditional_puts(self) -> bool:
        """Whether `create_only` is decided by the store itself, with one winner in a race.

        Where it is found out by asking the server, it is False until the first `create_only`.
        """
        ...

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        """Store the bytes, or the file, and return when the store confirmed it.

        With `create_only`, raises AlreadyStored if there is an object of this key. Where
        `conditional_puts` is False this is a look before the put, and two may win.
        With `resumable`, what a put of this key that failed, or is in `unfinished`, has brought
        there need not travel again, if the store can tell that it is of these bytes; where this
        one fails it is left so too.
        """
        ...

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        """Make an object of the bytes of another one, which need not travel.

        Raises NotStored where the source is gone, or has another ETag than its entry, and
        StorageError where the store cannot copy. Not all look at the source's ETag: the copy's,
        where it is the same, or where `holds` says so, proves which bytes were copied.
        """
        ...

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        """Whether the store proves, without giving them, that the object has the file's bytes.

        False where it cannot tell.
        """
        ...

    async def unfinished(self, prefix: str = "") -> list[str]:
        """The keys in this folder and below whose puts were begun and may be continued.

        Those of other processes, which may have died, too. They are no objects.
        """
        ...

    async def abandon(self, prefix: str = "") -> None:
        """Remove what is left of those puts, so far as this store knows of them by now."""
        ...

    async def get(self, key: str, target: Path) -> int:
        """Write the object to a local file, which appears at once and whole; returns its size.

        The folder of `target` must exist. Raises NotStored.
        """
        ...

    async def read(self, key: str) -> bytes:
        """The content of a small object. Raises NotStored."""
        ...

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        """All objects in the folder `prefix` ("" for all) and below, sorted by key.

        With `leftovers` also what interrupted puts left there, which is no object: for the owner
        of a folder, who empties it.
        """
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """The object's entry, or None if there is none."""
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, and folders that are empty then; what is not there counts as deleted.

        All are tried; then raises StorageError naming the keys that could not be.
        """
        ...

    async def close(self) -> None:
        """Release connections and threads. The store is of no use afterwards."""
        ...


@runtime_checkable
class PutsBatches(Protocol):
    """A store to which many small files go faster in one call than each in a call of its own."""

    @property
    def batch_bytes(self) -> int:
        """Files up to this size may be in a batch."""
        ...

    async def put_batch(
        self,
        sources: Mapping[str, Path],
        *,
        for_s: float,
        stored: Callable[[str, PutResult], None],
    ) -> None:
        """Put the files one after the other; when `for_s` is over none is begun but the first.

        `stored` hears of each that the store confirmed, before a StorageError of the first that
        failed is raised. Of the others nothing is known.
        """
        ...


class PutsAtOnce:
    """For stores whose interrupted puts leave nothing that could be continued, and that tell
    nothing of the bytes of an object but their number."""

    __slots__ = ()

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        return False

    async def unfinished(self, prefix: str = "") -> list[str]:
        return []

    async def abandon(self, prefix: str = "") -> None:
        """There is nothing to abandon."""


def check_key(key: str) -> str:
    """Return the key, or raise ValueError: a key is relative, posix and without `..`."""
    return inner_path(key, "the key")


def folder_prefix(prefix: str) -> str:
    """What the keys of a folder start with: "" or the folder with one slash at its end."""
    stripped = prefix.strip("/")
    return f"{stripped}/" if stripped else ""


def source_size(source: bytes | Path) -> int:
    """The size in bytes of what is to be put. Raises OSError for an unreadable file."""
    return len(source) if isinstance(source, bytes) else os.stat(source).st_size


def allowance_s(size: int) -> float:
    """How long a transfer of so many bytes may take: a minute, and a second for each 256 KiB.

    Slower than that is a stalled connection for our purpose.
    """
    return 60.0 + size / (256 * 1024)


def deletion_failure(where: str, failures: dict[str, StorageError]) -> StorageError:
    """One error for the keys that could not be deleted, of the type of the first."""
    first = next(iter(failures.values()))
    shown = "; ".join(f"{key}: {error.cause}" for key, error in list(failures.items())[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return type(first)("delete", where, f"{len(failures)} objects: {shown}{more}", first.advice)


def prune(folders: Iterable[str], root: str, remove_empty: Callable[[str], None]) -> None:
    """Remove the folders, and those above them up to `root`, that are empty now."""
    for folder in set(folders):
        while folder.startswith(f"{root}/"):
            try:
                remove_empty(folder)
            except OSError:  # there is something in it, or it is gone already
                break
            folder = folder.rpartition("/")[0]


async def for_each(
    perform: Callable[[T], Awaitable[object]], items: Iterable[T], *, at_once: int
) -> None:
    """Perform for every item, so many at once; the first error cancels the rest and is raised.

    It is raised as itself and not in a group: what a store raises is a StorageError.
    """
    import anyio

    waiting = iter(items)

    async def take() -> None:
        for item in waiting:
            await perform(item)

    try:
        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(take)
    except ExceptionGroup as errors:
        first = innermost(errors)
        raise first from first.__cause__
