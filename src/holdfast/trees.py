"""Removes directories, everywhere in holdfast.

What is mounted in a directory, or over it, belongs to somebody else: then nothing of the directory
is removed. Mounts of the same disk (bind mounts) are found in the kernel's table, and other file
systems (on macOS, subvolumes) by their device.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress

Path = str | os.PathLike[str]

# Each attempt fails only if another process deletes the same tree, which then makes progress.
_ATTEMPTS = 100
_TABLE = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mounted(OSError):
    """A directory cannot be removed, because something is mounted there: `filename`."""

    def __init__(self, path: str) -> None:
        said = "another file system is mounted there, and holdfast removes none. Unmount it first"
        super().__init__(errno.EBUSY, said, path)


def delete_tree(path: Path) -> None:
    """Delete a directory, which another process may be deleting as well, a file or a link.

    Does nothing if it is missing. Raises Mounted before anything is deleted, and OSError.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    refuse_mounts(path)
    try:
        _rmtree(path)
    except PermissionError:
        _open_up(path)
        _rmtree(path)


def try_to_delete(path: Path) -> None:
    """Delete a directory, a file or a link, or leave what cannot be deleted."""
    with suppress(OSError):
        delete_tree(path)


def refuse_mounts(path: Path) -> None:
    """Raise Mounted if anything is mounted in this directory, or over it."""
    above, name = os.path.split(os.path.abspath(path))
    top = os.path.join(os.path.realpath(above), name)
    if os.path.islink(top):
        return  # nothing is removed behind it
    for found in (*mounts_below(top), *_other_devices(top)):
        raise Mounted(found)


def mounts_below(top: str) -> list[str]:
    """The places at or below a real path where something is mounted; none without a table."""
    try:
        with open(_TABLE, "rb") as table:
            lines = table.read().splitlines()
    except OSError:  # not Linux
        return []
    # Its fifth column is the place, with spaces and a few others as octal numbers.
    places = (os.fsdecode(_ESCAPED.sub(_byte, line.split(b" ", 5)[4])) for line in lines)
    return [place for place in places if place == top or place.startswith(f"{top}/")]


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


def _other_devices(top: str) -> Iterator[str]:
    device = _device(os.path.dirname(top))
    folders = (os.path.join(at, name) for at, names, _ in os.walk(top) for name in names)
    return (folder for folder in (top, *folders) if _device(folder) not in (device, None))


def _device(folder: str) -> int | None:
    try:
        return os.lstat(folder).st_dev
    except FileNotFoundError:  # another process is deleting it
        return None


def _rmtree(path: Path) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # another process has deleted a part of it
            shutil.rmtree(path)
        if not os.path.lexists(path):
            return
    shutil.rmtree(path)


def _open_up(path: Path) -> None:
    """Make a folder writable: staging preserves the modes of users' read-only folders."""
    os.chmod(path, stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:
            child = os.path.join(folder, name)
            if not os.path.islink(child):
                os.chmod(child, stat.S_IRWXU)
