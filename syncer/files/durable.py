"""Writes and removes files so that a crash leaves the old state or the new one, never a part."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path

from holdfast.syncer.files.disk_deadline import answered
from holdfast.trees import delete_tree, refuse_mounts

TEMPORARY = ".tmp-"
REMOVED = ".removed-"
_LEFTOVER = re.compile(r"\.(tmp|removed)-[0-9a-f]{16}")


def unique() -> str:
    """Sixteen random hexadecimal digits for a unique name."""
    return os.urandom(8).hex()  # the module `secrets` costs 9 ms of import


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes; a single call may write fewer, for instance if the disk is nearly full."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_file(descriptor: int, size_bytes: int = 0) -> None:
    """Force the data written to the descriptor to the disk; at most `size_bytes` are waiting.

    On macOS, `fsync` leaves the data in the drive's cache (see its man page), so F_FULLFSYNC is
    used. Raises OSError, such as NoAnswer.
    """
    answered(
        lambda: _force(descriptor),
        lambda: f"fsync of {_path_of(descriptor)}",
        size_bytes=size_bytes,
    )


def fdatasync_file(descriptor: int) -> None:
    """Like `fsync_file`, without the file's times, which would take another write."""
    # macOS has no fdatasync.
    force = getattr(os, "fdatasync", _force)
    answered(lambda: force(descriptor), lambda: f"fdatasync of {_path_of(descriptor)}")


def _force(descriptor: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def _path_of(descriptor: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")  # only on Linux
    return "a file"


@contextmanager
def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of the file or folder, for the duration of the block. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor of a new file, to write and to read. Raises OSError."""
    with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        yield descriptor


def fsync_path(path: str | os.PathLike[str]) -> None:
    """Force a file to the disk that any process has written."""
    with opened(path) as descriptor:
        fsync_file(descriptor)


def fsync_dir(path: str | os.PathLike[str]) -> None:
    """Force the names in a folder to the disk. Only then does a rename survive a power cut."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        answered(lambda: os.fsync(descriptor), lambda: f"fsync of the folder {path!s}")


def make_folder(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Create a folder and its parents if necessary, and force their names to the disk.

    `mode` is for the folder itself if it is created. Raises OSError.
    """
    folder = Path(os.path.abspath(path))
    above = folder.parent
    if not above.exists():
        make_folder(above)
    folder.mkdir(mode=mode, exist_ok=True)
    # Also if it exists: its creator may have died before forcing its name to the disk.
    with suppress(PermissionError):  # permission to enter a folder does not allow opening it
        fsync_dir(above)


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file by `data` and force it to the disk. A reader sees the old or the new bytes.

    The folder must exist. Raises OSError, and then leaves the old file and no temporary one. If
    only the folder could not be forced to the disk, it leaves the new file, and a power cut may
    bring back the old one.
    """
    with new_file_for(path) as file:
        write_all(file.fileno(), data)
        fsync_file(file.fileno())
    fsync_dir(os.path.dirname(path) or ".")


def replace_file(path: str | os.PathLike[str], data: bytes, *, number: str = "") -> None:
    """Replace the file by `data`, without an fsync. A reader sees the old or the new bytes.

    A power cut may lose both, so use it only for files that can be created again. The folder must
    exist. `number` is that in the name of the temporary file, if the caller removes it after a
    crash. Raises OSError, and then leaves the old file and no temporary one.
    """
    with new_file_for(path, number=number) as file:
        write_all(file.fileno(), data)


@contextmanager
def new_file_for(
    path: str | os.PathLike[str], mode: int = 0o666, *, number: str = ""
) -> Iterator[FileIO]:
    """A new file, under a temporary name in the same folder. It replaces the file `path` at the
    end of the block; if that raises, it is removed."""
    # The temporary name does not contain the target's, which may already have 255 bytes.
    temporary = os.path.join(os.path.dirname(path), f"{TEMPORARY}{number or unique()}")
    try:
        with open(temporary, "xb", buffering=0, opener=partial(os.open, mode=mode)) as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove the file if it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory and its contents; does nothing if it is missing.

    It is first renamed to a hidden name, so that no reader sees a partly deleted checkpoint. If a
    crash leaves it there, `remove_leftovers_in` removes it. For a symlink, only the link is
    removed.
    """
    aside = put_aside(path)
    if aside is not None:
        delete_tree(aside)


def put_aside(path: str | os.PathLike[str], into: Path | None = None) -> Path | None:
    """Rename a directory to a hidden name in the same folder, or in another one of its file
    system. Returns the new path; None if the directory is missing. Raises Mounted, OSError."""
    target = Path(path)
    if os.path.lexists(target):
        refuse_mounts(target)
    aside = (into or target.parent) / f"{REMOVED}{unique()}"
    try:
        os.rename(target, aside)
    except FileNotFoundError:
        return None
    return aside


def is_leftover(name: str) -> bool:
    """Whether this is the name of a leftover of an interrupted write or removal."""
    return _LEFTOVER.fullmatch(name) is not None


def remove_leftovers_in(folder: str | os.PathLike[str], before: float = float("inf")) -> bool:
    """Remove the leftovers of interrupted writes and removals in a folder; return whether none is
    left.

    Only those that have not changed since `before` (seconds since 1970, by the file system's
    clock): newer ones may be writes in progress. Leftovers that cannot be removed stay.
    """
    try:
        with os.scandir(folder) as entries:
            return remove_leftovers_among(list(entries), before)
    except FileNotFoundError:
        return True


def remove_leftovers_among(
    entries: Iterable[os.DirEntry[str]], before: float = float("inf")
) -> bool:
    """The same, for the entries of a folder that was listed."""
    left = [entry for entry in entries if is_leftover(entry.name)]
    gone = 0
    for entry in left:
        with suppress(OSError):  # its owner has removed it, or this process may not
            if entry.stat(follow_symlinks=False).st_ctime < before:
                delete_tree(Path(entry.path))
                gone += 1
    return gone == len(left)
