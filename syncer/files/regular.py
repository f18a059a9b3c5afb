"""Opens files in folders that another user may have written: only regular files, no links.

A folder from elsewhere may contain a FIFO, which blocks the reader, or a link to one of the
reader's own files. holdfast writes neither, so it refuses both.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import BinaryIO

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o644
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegular(OSError):
    """The name belongs to something other than a regular file; the message says what."""


def is_at(path: str | os.PathLike[str], descriptor: int) -> bool:
    """True if the path still names the open file."""
    with suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def regular_descriptor(path: str | os.PathLike[str], flags: int, mode: int = _MODE) -> int:
    """Open like `os.open`, but never block. Raises NotRegular, IsADirectoryError or another
    OSError."""
    try:
        descriptor = os.open(path, flags | _SAFE, mode)
    except OSError as error:
        # A link, a FIFO without a reader, a socket, or a folder that was opened for writing.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _refused(path, os.lstat(path).st_mode) from error
        raise
    found = os.fstat(descriptor).st_mode
    if stat.S_ISREG(found):
        return descriptor
    os.close(descriptor)
    raise _refused(path, found)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, NotRegular."""
    return open(regular_descriptor(path, os.O_RDONLY), "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file. Raises OSError, NotRegular."""
    with open_regular(path) as file:
        return file.read()


def _refused(path: str | os.PathLike[str], mode: int) -> OSError:
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    said = f"it is {kind}, and holdfast reads and writes regular files only"
    return NotRegular(errno.EINVAL, said, os.fspath(path))
