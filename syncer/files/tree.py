"""Walking a user's directory: what counts as its content, and what cannot be kept.

A checkpoint must be the same on a disk, in a bucket and after a move, so symlinks are followed
(a link into the machine's file system would dangle elsewhere), names must be UTF-8 (object keys
are) and sockets, pipes and devices are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.syncer.errors import DirectoryMissing, UnusableFile, from_os_error
from holdfast.syncer.files.durable import is_leftover

MANIFEST_NAME = ".holdfast.json"
METADATA_NAME = ".metadata.json"
CLAIMS = ".epochs"  # where storage has which run may write to it


class TreeEntry(NamedTuple):
    """A file or a folder: its name relative to the walked directory (posix), and where it is.

    A tuple, not a frozen dataclass: made for each of a thousand small files, it costs a fifth.
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
        raise UnusableFile(operation, path, "this is not a directory")
    raise DirectoryMissing(operation, path, "this directory does not exist")


def walk(directory: str | os.PathLike[str], operation: str) -> Iterator[TreeEntry]:
    """Everything in a directory, folders before what is in them, in no other order.

    Our own manifest at the top and leftovers of interrupted writes are not content. Raises
    DirectoryMissing, UnusableFile, or another StorageError that names the unreadable folder.
    """
    check_directory(directory, operation)
    yield from _walk(os.fspath(directory), "", (), operation)


def bytes_below(path: str) -> int:
    """The bytes of a file, or of all files below a folder. A link counts as itself, and what goes
    meanwhile as nothing."""
    if os.path.islink(path):
        return _file_bytes(path)
    total = 0
    try:
        with os.scandir(path) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    total += bytes_below(item.path)
                else:
                    total += _file_bytes(item.path)
    except NotADirectoryError:
        return _file_bytes(path)
    except FileNotFoundError:
        pass
    return total


def _file_bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _walk(
    folder: str, prefix: str, link_parents: tuple[str, ...], operation: str
) -> Iterator[TreeEntry]:
    try:
        with os.scandir(folder) as entries:
            listed = list(entries)
    except OSError as error:
        raise from_os_error(error, operation, folder) from error
    for entry in listed:
        name = prefix + entry.name
        if name[0] == "." and (name == MANIFEST_NAME or is_leftover(name)):
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
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(os.path.basename(name))
        where = f"{os.fsencode(folder)!r}"
        raise UnusableFile(operation, where, f"the file name {shown!r} is not UTF-8") from error


def _above(
    entry: os.DirEntry[str], folder: str, link_parents: tuple[str, ...], operation: str
) -> tuple[str, ...]:
    """The real folders that stand above the target of a link; a link to one of them is a loop."""
    target = os.path.realpath(entry.path)
    above = (*link_parents, os.path.realpath(folder))
    if any(os.path.commonpath([target, parent]) == target for parent in above):
        raise UnusableFile(operation, entry.path, "this symlink leads to a folder that it is in")
    return above


def _why_unusable(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        target = os.readlink(entry.path)
        return (
            "this is not a regular file (a pipe, socket or device)"
            if os.path.exists(entry.path)
            else f"this symlink points to {target!r}, which does not exist"
        )
    return "this is not a regular file (a pipe, socket or device)"
