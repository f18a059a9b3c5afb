"""Opening files that somebody else may have put there: regular ones only, never through a link.

A folder that came from elsewhere may hold a FIFO, which blocks whoever opens it, or a link to a
file of its reader's. What holdfast writes is neither, so that both are refused.
"""

from __future__ import annotations

import errno
import os
import stat
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
    """Something else than a regular file stands under the name; the message says what."""


def regular_descriptor(path: str | os.PathLike[str], flags: int, mode: int = _MODE) -> int:
    """Open as `os.open` does. Raises OSError, NotRegular and IsADirectoryError without
    having waited for anybody."""
    try:
        descriptor = os.open(path, flags | _SAFE, mode)
    except OSError as error:
        # A link, a FIFO that nobody reads, a socket; a folder that is to be written.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _refused(path, os.lstat(path).st_mode) from error
        raise
    found = os.fstat(descriptor).st_mode
    if stat.S_ISREG(found):
        return descriptor
    os.close(descriptor)
    raise _refused(path, found)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file for reading. Raises OSError, NotRegular."""
    return open(regular_descriptor(path, os.O_RDONLY), "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a regular file. Raises OSError, NotRegular."""
    with open_regular(path) as file:
        return file.read()


def _refused(path: str | os.PathLike[str], mode: int) -> OSError:
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    said = f"it is {kind}, and holdfast reads and writes regular files only"
    return NotRegular(errno.EINVAL, said, os.fspath(path))
