"""Walks a user's directory, and refuses entries that cannot be stored.

A checkpoint must be the same on a disk, in a bucket and after a move. So symlinks are followed
(they would be broken on another machine), names must be UTF-8, as object keys are, and sockets,
pipes and devices are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.names import is_utf8
from holdfast.syncer.errors import DirectoryMissing, UnusableFile, os_errors
from holdfast.syncer.files.durable import is_leftover

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
