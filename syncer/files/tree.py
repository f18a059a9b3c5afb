"""Walks a user's directory, and opens files that another user may have written.

A checkpoint must be the same on a disk, in a bucket and after a move. So symlinks are followed
(they would be broken on another machine), names must be UTF-8, as object keys are, and sockets,
pipes and devices are refused.

A folder from elsewhere may contain a FIFO, which blocks the reader, or a link to one of the
reader's own files. holdfast writes neither, so `open_regular` refuses both. `open_inside` opens
each part of a path in the folder before it, because a folder on the way can become a link.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from holdfast.names import is_utf8
from holdfast.syncer.errors import DirectoryMissing, UnusableFile, os_errors
from holdfast.syncer.files.durable import is_leftover

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


MANIFEST_NAME = ".holdfast.json"
# In a checkpoint that has no manifest yet: a script may have folders of such names of its own.
STAGED_NAME = ".holdfast-staged"
METADATA_NAME = ".metadata.json"
# A file of the script's own that had the name of one of holdfast's has this at its end.
OF_SCRIPT = ".of-script"
CLAIMS = ".epochs"  # the folder in storage that says which run may write to it


class TreeEntry(NamedTuple):
    """A file or a folder: its posix path relative to the walked directory, and its full path.

    A tuple takes a fifth of the time of a frozen dataclass, and there is one per file.
    """

    name: str
    path: str
    is_dir: bool
    is_link: bool


def check_directory(directory: str | os.PathLike[str], operation: str) -> None:
    """Raise DirectoryMissing or UnusableFile unless this is a directory."""
    path = os.fspath(directory)
    if os.path.isdir(path):
        return
    if os.path.lexists(path):
        advice = "Put it into a folder of its own, and pass that" if os.path.isfile(path) else ""
        raise UnusableFile(operation, path, "this is not a directory", advice)
    raise DirectoryMissing(operation, path, "this directory does not exist")


def walk(directory: str | os.PathLike[str], operation: str) -> Iterator[TreeEntry]:
    """The content of a directory; each folder comes before its content.

    It leaves out holdfast's manifest or mark at the top, and leftovers of interrupted writes.
    Raises DirectoryMissing, UnusableFile, or another StorageError that names the unreadable
    folder.
    """
    check_directory(directory, operation)
    yield from _walk(os.fspath(directory), "", (), operation)


def is_ours(checkpoint: str | os.PathLike[str]) -> bool:
    """True if holdfast has made this folder, which has the name of a checkpoint."""
    marks = (MANIFEST_NAME, STAGED_NAME)
    return any(os.path.lexists(os.path.join(checkpoint, name)) for name in marks)


def mark_staged(checkpoint: str | os.PathLike[str]) -> None:
    """Mark a complete folder that will be renamed to that of a checkpoint. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    os.close(os.open(os.path.join(checkpoint, STAGED_NAME), flags, 0o666))


def bytes_below(path: str) -> int:
    """The bytes of a file, or of all files below a folder. Links are not followed, and files that
    are removed meanwhile do not count."""
    return _sum_below(path, lambda facts: facts.st_size)


def growth_below(path: str) -> int:
    """A number that changes whenever files below a folder grow, or holes in them are filled.

    Some file systems count the blocks later than the size.
    """
    return _sum_below(path, lambda facts: facts.st_size + facts.st_blocks)


def _sum_below(path: str, count: Callable[[os.stat_result], int]) -> int:
    if os.path.islink(path):
        return _count(path, count)
    total = 0
    try:
        with os.scandir(path) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    total += _sum_below(item.path, count)
                else:
                    total += _count(item.path, count)
    except NotADirectoryError:
        return _count(path, count)
    except FileNotFoundError:
        pass
    return total


def _count(path: str, count: Callable[[os.stat_result], int]) -> int:
    try:
        return count(os.lstat(path))
    except FileNotFoundError:
        return 0


def _walk(
    folder: str, prefix: str, link_parents: tuple[str, ...], operation: str
) -> Iterator[TreeEntry]:
    with os_errors(operation, folder), os.scandir(folder) as entries:
        listed = list(entries)
    for entry in listed:
        name = prefix + entry.name
        if name[0] == "." and (name in (MANIFEST_NAME, STAGED_NAME) or is_leftover(name)):
            continue
        _check_name(name, operation, folder)
        is_link = entry.is_symlink()
        if entry.is_dir():
            above = _above(entry, folder, link_parents, operation) if is_link else link_parents
            yield TreeEntry(name, entry.path, True, is_link)
            yield from _walk(entry.path, f"{name}/", above, operation)
        elif entry.is_file():
            yield TreeEntry(name, entry.path, False, is_link)
        else:
            raise UnusableFile(operation, entry.path, _why_unusable(entry))


def _check_name(name: str, operation: str, folder: str) -> None:
    if not is_utf8(name):
        shown = os.fsencode(os.path.basename(name))
        where = f"{os.fsencode(folder)!r}"
        raise UnusableFile(operation, where, f"the file name {shown!r} is not UTF-8")


def _above(
    entry: os.DirEntry[str], folder: str, link_parents: tuple[str, ...], operation: str
) -> tuple[str, ...]:
    """The real folders above the target of a link; a link to one of them would be a loop."""
    target = os.path.realpath(entry.path)
    above = (*link_parents, os.path.realpath(folder))
    if any(os.path.commonpath([target, parent]) == target for parent in above):
        raise UnusableFile(operation, entry.path, "this symlink leads to a folder that it is in")
    return above


def _why_unusable(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink() and not os.path.exists(entry.path):
        return f"this symlink points to {os.readlink(entry.path)!r}, which does not exist"
    return "this is not a regular file (a pipe, socket or device)"
