"""The interface to storage: put, get, list and delete objects below one place.

Keys are relative posix paths. Folders exist only as parts of keys, so there are no empty ones.
Every implementation passes tests/syncer/stores/test_store_contract.py.

holdfast's own small files are read with a limit on their size: a folder or a bucket may come from
another user, and a gigabyte in place of a head would take a gigabyte of memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.names import inner_path, shown
from holdfast.syncer.errors import NotStored, StorageError, StorageRefused, innermost, os_errors
from holdfast.syncer.files.durable import opened
from holdfast.syncer.files.tree import open_regular

T = TypeVar("T")

# A deletion may remove the folder of a file that is being put, and the put creates it again. With
# four processes that put and delete in one folder all the time, five attempts are not enough.
FOLDER_ATTEMPTS = 100
# A body may end early, and an object may be replaced while it is read.
DOWNLOAD_ATTEMPTS = 3
# The deadline of operations that transfer no large object.
LOOKUP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """The size in bytes that the store confirmed, and the ETag if the store has ETags."""

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

    Every operation has its own deadline. A cancelled operation leaves the old or the new object,
    never a part of one.
    """

    @property
    def where(self) -> str:
        """The place for messages, without credentials."""

    @property
    def has_folders(self) -> bool:
        """Whether folders are real: an interrupted operation may leave an empty one, or a part of
        a file that is not an object."""

    @property
    def conditional_puts(self) -> bool | None:
        """Whether the store itself decides `create_only`, with one winner in a race.

        If only the server can tell, this is None until the first put with `create_only`.
        """

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        """Store the bytes or the file, and return when the store has confirmed it.

        With `create_only`, raises AlreadyStored if the key exists. Without `conditional_puts`,
        the store only looks before the put, so two writers may win.
        With `resumable`, the put continues an earlier one of this key that failed or is in
        `unfinished`, if the store can tell that its parts are of these bytes. If this put fails,
        it can be continued, too.
        """

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        """Copy an object inside the storage.

        Raises NotStored if the source is gone or its ETag differs from its entry's, and
        StorageError if the store cannot copy. Not all stores check the source's ETag. The copied
        bytes are proved if the copy has the same ETag, or by `holds`.
        """

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        """True if the store proves, without a download, that the object has the file's bytes.

        False if it cannot.
        """

    async def unfinished(self, prefix: str = "") -> list[str]:
        """The keys in this folder and below whose puts were begun and can be continued.

        They include puts of other processes, which may have died. The keys are not objects yet.
        """

    async def abandon(self, prefix: str = "") -> None:
        """Remove the unfinished puts that this store knows of."""

    async def get(self, key: str, target: Path) -> int:
        """Download the object to a local file, which appears when it is complete; return its size.

        The folder of `target` must exist. Raises NotStored.
        """

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        """Download the object of a listing into the new file `target`, and return its checksum in
        hexadecimal digits, "" without an algorithm.

        The file may grow while the bytes arrive, and an error leaves a part of it: the folder is
        one that no reader sees, and the caller removes it. Raises NotStored.
        """

    async def read(self, key: str) -> bytes:
        """The content of a small object. Raises NotStored."""

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        """All objects in the folder `prefix` ("" for all) and below, sorted by key.

        With `leftovers`, also files that interrupted puts left, which are not objects; the owner
        of a folder removes them.
        """

    async def head(self, key: str) -> ObjectInfo | None:
        """The object's entry, or None if there is none."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, and folders that are empty afterwards. Missing objects are fine.

        Tries all keys; then raises StorageError with the keys that could not be deleted.
        """

    async def close(self) -> None:
        """Release connections and threads. The store cannot be used afterwards."""


class PutsAtOnce:
    """Base class of stores whose interrupted puts cannot be continued, that know nothing about an
    object's bytes except their number, and that hash no object while it arrives."""

    __slots__ = ()

    @abstractmethod
    async def get(self, key: str, target: Path) -> int:
        """As of `Store`."""

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        # Imported here, because workers and the projector, which read small files, need no event
        # loop.
        from holdfast.syncer.files import threads

        size = await self.get(entry.key, target)
        if algorithm is None:
            return ""
        with os_errors("read", str(target)):
            if size <= _INLINE_BYTES:
                return _hash_file(target, size, algorithm)
            return await threads.call(lambda: _hash_file(target, size, algorithm))

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        return False

    async def unfinished(self, prefix: str = "") -> list[str]:
        return []

    async def abandon(self, prefix: str = "") -> None:
        """Does nothing: there are no unfinished puts."""


def check_key(key: str) -> str:
    """Return the key, or raise ValueError: a key is relative, posix and without `..`."""
    return inner_path(key, "the key")


def folder_prefix(prefix: str) -> str:
    """The prefix of a folder's keys: "" or the folder with one slash at its end."""
    stripped = prefix.strip("/")
    return f"{stripped}/" if stripped else ""


def source_size(source: bytes | Path) -> int:
    """The size of the source in bytes. Raises OSError for an unreadable file."""
    return len(source) if isinstance(source, bytes) else os.stat(source).st_size


def allowance_s(size: int) -> float:
    """The deadline for a transfer of `size` bytes: a minute, and a second for each 256 KiB.

    A slower connection counts as stalled.
    """
    return 60.0 + size / (256 * 1024)


def deletion_failure(where: str, failures: dict[str, StorageError]) -> StorageError:
    """One error for all keys that could not be deleted, of the first error's type."""
    first = next(iter(failures.values()))
    shown = "; ".join(f"{key}: {error.cause}" for key, error in list(failures.items())[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return type(first)("delete", where, f"{len(failures)} objects: {shown}{more}", first.advice)


def prune(folders: Iterable[str], root: str, remove_empty: Callable[[str], None]) -> None:
    """Remove the folders, and those above them up to `root`, if they are empty."""
    for folder in set(folders):
        while folder.startswith(f"{root}/"):
            try:
                remove_empty(folder)
            except OSError:  # it is not empty, or already gone
                break
            folder = folder.rpartition("/")[0]


async def for_each(
    perform: Callable[[T], Awaitable[object]], items: Iterable[T], *, at_once: int
) -> None:
    """Call `perform` for every item, `at_once` at a time. The first error cancels the rest and is
    raised, without an exception group.
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


GetHashed = Callable[[ObjectInfo, Path, str | None], Awaitable[str]]

_BUFFER_BYTES = 1 << 20
# Hashed in less time than a thread takes to wake.
_INLINE_BYTES = 64 << 10


def _hash_file(path: Path, size: int, algorithm: str) -> str:
    digest = new_digest(algorithm)
    with opened(path) as descriptor:
        read_into(digest, descriptor, 0, size)
    return str(digest.hexdigest())


def new_digest(algorithm: str) -> Any:
    return hashlib.new(algorithm, usedforsecurity=False)


def read_into(digest: Any, descriptor: int, start: int, end: int) -> None:
    """Update the digest with these bytes of a file. Raises OSError, also if they are not there."""
    buffer = memoryview(bytearray(min(end - start, _BUFFER_BYTES)))
    while start < end:
        count = os.preadv(descriptor, [buffer[: end - start]], start)
        if not count:
            raise OSError("the file became shorter while it was downloaded")
        digest.update(buffer[:count])
        start += count


# The limit for a note, or for a lock's holder.
NOTE_BYTES = 1 << 16
# The limit for a head of a million segments, an index of a million files, or a large config.
MOST_BYTES = 256 << 20
_GROWN_BYTES = 1 << 20


def read_small(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read a regular file. Raises OSError, also if it has more than `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most else _read(file, size, most)
    if (found := max(size, len(data))) > most:
        raise OSError(errno.EFBIG, _too_large(found, most), os.fspath(path))
    return data


def _read(file: BinaryIO, size: int, most: int) -> bytes:
    """All of a file of about this size, but not much more than `most` bytes.

    `file.read(most + 1)` would first allocate as much: a machine with less memory refuses that.
    """
    data = file.read(size + 1)
    if len(data) <= size:
        return data
    parts, read = [data], len(data)  # it has grown, or its filesystem does not know its size
    while read <= most and (more := file.read(_GROWN_BYTES)):
        parts.append(more)
        read += len(more)
    return b"".join(parts)


def read_note(path: str | os.PathLike[str]) -> str:
    """Read a file with a line of text. Raises OSError, also if it is not text."""
    try:
        return read_small(path, NOTE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "this is not UTF-8 text", os.fspath(path)) from error


def read_json(path: str | os.PathLike[str], most: int = MOST_BYTES) -> Any:
    """Read a JSON file. Raises OSError, and ValueError if it is not JSON."""
    return parse_json(read_small(path, most))


def parse_json(data: bytes | str) -> Any:
    """Parse JSON. Raises ValueError, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_table(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError."""
    found = parse_json(data)
    if type(found) is not dict:
        raise ValueError(f"it must be a JSON object, not {shown(found)}")
    return found


async def read_object(store: Store, key: str, most: int = MOST_BYTES) -> bytes:
    """Read a small object in storage. Raises StorageError, also if it is larger."""
    entry = await store.head(key)
    if entry is None:
        raise NotStored("read", f"{store.where}/{key}", "it does not exist")
    if entry.size > most:
        raise StorageRefused("read", f"{store.where}/{key}", _too_large(entry.size, most))
    return await store.read(key)


def _too_large(size: int, most: int) -> str:
    return f"it has {size:,} bytes, and holdfast writes at most {most:,}"
