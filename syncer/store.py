"""The seam to storage: put, get, list and delete of objects below one place.

Keys are relative posix paths. The folder of a key exists by the key; empty folders do not.
Every implementation passes tests/syncer/test_store_contract.py.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.syncer.errors import StorageError, innermost

T = TypeVar("T")

# A put makes the folder of its file again, so often, where deletions beside it found it empty:
# where four put and delete in one folder without a pause, five times are not enough.
FOLDER_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the store confirmed: the size in bytes, and its ETag where it has them."""

    size: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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

    async def put(self, key: str, source: bytes | Path, *, create_only: bool = False) -> Stored:
        """Store the bytes, or the file, and return when the store confirmed it.

        With `create_only`, raises AlreadyStored if there is an object of this key. Where
        `conditional_puts` is False this is a look before the put, and two may win.
        """
        ...

    async def get(self, key: str, target: Path) -> int:
        """Write the object to a local file, which appears at once and whole; returns its size.

        The folder of `target` must exist. Raises NotStored.
        """
        ...

    async def read(self, key: str) -> bytes:
        """The content of a small object. Raises NotStored."""
        ...

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[Entry]:
        """All objects in the folder `prefix` ("" for all) and below, sorted by key.

        With `leftovers` also what interrupted puts left there, which is no object: for the owner
        of a folder, who empties it.
        """
        ...

    async def head(self, key: str) -> Entry | None:
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


def check_key(key: str) -> str:
    """Return the key, or raise ValueError: a key is relative, posix and without `..`."""
    if not key or key.startswith("/") or any(part in {"", ".", ".."} for part in key.split("/")):
        raise ValueError(f"{key!r} is not a key: it must be a relative path such as 'a/b.json'")
    return key


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
