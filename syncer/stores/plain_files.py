"""Reads holdfast's own small files with a limit on their size, and parses JSON safely.

A folder or a bucket may come from another user. A gigabyte in place of a head would take a
gigabyte of memory, and ten thousand brackets would cause a RecursionError.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any, BinaryIO

from holdfast.names import shown
from holdfast.syncer.errors import NotStored, StorageRefused
from holdfast.syncer.files.regular import open_regular
from holdfast.syncer.stores.store import Store

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
