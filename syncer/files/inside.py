"""Opens what is below a folder that another user may write, without following a link.

A check of a path and a later open are two looks at it: in between a folder on the way can become a
link. So each part of a path is opened in the folder before it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.syncer.files.regular import NotRegular

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def folder_inside(root: Path, *names: str) -> int:
    """A descriptor of the folder with these names below `root`, which is absolute and has no link
    in it (`os.path.realpath`).

    Raises NotRegular for a link or a file on the way, and OSError.
    """
    at = _opened_root(root, is_last=not names)
    for name in names:
        at = _step(at, name, _FOLDER)
    return at


def folder_within(folder: int, name: str) -> int:
    """A descriptor of the folder of this name in an open folder. Raises as `folder_inside`."""
    return _open(name, _FOLDER, folder)


def open_inside(root: Path, path: str) -> BinaryIO:
    """Open a regular file below `root`, which is as for `folder_inside`, for reading.

    Raises NotRegular for a link, a pipe, a device or a folder, also on the way, and OSError.
    """
    *above, name = path.split("/")
    descriptor = _step(folder_inside(root, *above), name, _FILE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return open(descriptor, "rb")


def _opened_root(root: Path, *, is_last: bool) -> int:
    if sys.platform != "linux":
        # macOS has a flag that follows no link anywhere in a path.
        return _open(str(root), _FOLDER | getattr(os, "O_NOFOLLOW_ANY", 0), None)
    # A folder on the way may be entered, and not be read: so it is only looked up.
    above = _FOLDER | os.O_PATH
    at = _open("/", above, None)
    names = root.parts[1:]
    for name in names[:-1]:
        at = _step(at, name, above)
    return _step(at, names[-1] if names else ".", _FOLDER if is_last else above)


def _step(folder: int, name: str, flags: int) -> int:
    """Open a name in an open folder, which is closed."""
    try:
        return _open(name, flags, folder)
    finally:
        os.close(folder)


def _open(name: str, flags: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        # A link, a socket or a pipe without a reader; a file or a link in place of a folder.
        refused = (errno.ELOOP, errno.ENXIO, *([errno.ENOTDIR] if flags & os.O_DIRECTORY else []))
        if error.errno in refused:
            raise _not_regular(name) from error
        raise


def _not_regular(path: str) -> NotRegular:
    said = "it is a link, a folder or a device, and only regular files are shown"
    return NotRegular(errno.EINVAL, said, path)
