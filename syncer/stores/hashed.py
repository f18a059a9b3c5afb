"""Downloads objects into new files and hashes them: while they arrive, if the store can do that.

The checksum is that of the bytes as they are read back from the file, so it proves the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast.syncer.errors import os_errors
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import opened
from holdfast.syncer.stores.store import ObjectInfo, Store

GetHashed = Callable[[ObjectInfo, Path, str | None], Awaitable[str]]

_BUFFER_BYTES = 1 << 20
# Hashed in less time than a thread takes to wake.
_INLINE_BYTES = 64 << 10


@runtime_checkable
class HashesArrivals(Protocol):
    """A store that hashes an object while it arrives."""

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        """Download the object of a listing into the new file `target`, and return its checksum in
        hexadecimal digits, "" without an algorithm.

        The file grows while the bytes arrive, and an error leaves a part of it: the folder is
        one that no reader sees, and the caller removes it. Raises NotStored.
        """


def hashing(store: Store) -> GetHashed:
    """`get_hashed` of the store, or what does the same with any other."""
    if isinstance(store, HashesArrivals):  # as slow as a request: not for each file
        return store.get_hashed

    async def get_and_hash(entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        size = await store.get(entry.key, target)
        if algorithm is None:
            return ""
        with os_errors("read", str(target)):
            if size <= _INLINE_BYTES:
                return _hash_file(target, size, algorithm)
            return await threads.call(lambda: _hash_file(target, size, algorithm))

    return get_and_hash


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
