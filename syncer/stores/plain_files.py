"""Files that only we write, small when we do: read with a limit, and parsed with care.

What lies in an experiment's folder or a bucket may be somebody else's. A gigabyte in place of a
head would be a gigabyte of memory, and ten thousand brackets would end in a RecursionError.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any

from holdfast.names import shown
from holdfast.syncer.errors import NotStored, StorageRefused
from holdfast.syncer.files.regular import open_regular
from holdfast.syncer.stores.store import Store

# A note, or a lock's holder.
NOTE_BYTES = 1 << 16
# A head of a million segments, an index of a million files, params.json of a large config.
MOST_BYTES = 256 << 20


def read_small(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file. Raises OSError, also for one of more than `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most and len(data := file.read(most + 1)) <= most:
            return data
    raise OSError(errno.EFBIG, _too_large(size, most), os.fspath(path))


def read_note(path: str | os.PathLike[str]) -> str:
    """A line of text that we keep in a file. Raises OSError, also for what is not text."""
    try:
        return read_small(path, NOTE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "this is not UTF-8 text", os.fspath(path)) from error


def read_json(path: str | os.PathLike[str], most: int = MOST_BYTES) -> Any:
    """What a JSON file holds. Raises OSError, and ValueError for what is not JSON."""
    return parse_json(read_small(path, most))


def parse_json(data: bytes | str) -> Any:
    """What JSON says. Raises ValueError, also where it is nested without end."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested without end") from None


def parse_table(data: bytes | str) -> dict[str, Any]:
    """A JSON object. Raises ValueError."""
    found = parse_json(data)
    if type(found) is not dict:
        raise ValueError(f"it must be a JSON object, not {shown(found)}")
    return found


async def read_object(store: Store, key: str, most: int = MOST_BYTES) -> bytes:
    """The bytes of a small object in storage. Raises StorageError, also for a larger one."""
    entry = await store.head(key)
    if entry is None:
        raise NotStored("read", f"{store.where}/{key}", "it is not there")
    if entry.size > most:
        raise StorageRefused("read", f"{store.where}/{key}", _too_large(entry.size, most))
    return await store.read(key)


def _too_large(size: int, most: int) -> str:
    return f"it has {size:,} bytes, and holdfast writes {most:,} at most"
