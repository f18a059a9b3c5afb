"""Writing and removing so that a crash leaves the old state or the new one, never a part."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

from holdfast.syncer.files.disk_deadline import answered

TEMPORARY = ".tmp-"
REMOVED = ".removed-"
# Each is lost to another process that deletes the same tree, and has got further then.
_ATTEMPTS = 100
_LEFTOVER = re.compile(r"\.(tmp|removed)-[0-9a-f]{16}")


def unique() -> str:
    """Sixteen hexadecimal digits that no other name has."""
    return os.urandom(8).hex()  # the module `secrets` costs 9 ms of import


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: one call may take fewer, and does where the disk is nearly full."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_file(descriptor: int, size_bytes: int = 0) -> None:
    """Force what was written to the descriptor onto the disk: `size_bytes` at most.

    On macOS `fsync` leaves the data in the drive's cache (its man page says so); F_FULLFSYNC
    does not. Raises OSError, among them NoAnswer.
    """
    answered(
        lambda: _force(descriptor),
        lambda: f"fsync of {_path_of(descriptor)}",
        size_bytes=size_bytes,
    )


def fdatasync_file(descriptor: int) -> None:
    """The same for what was appended: times that nobody reads need no write of their own."""
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
        return os.readlink(f"/proc/self/fd/{descriptor}")  # Linux alone
    return "a file"


def fsync_path(path: str | os.PathLike[str]) -> None:
    """Force a file onto the disk, whoever wrote it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync_file(descriptor)
    finally:
        os.close(descriptor)


def fsync_dir(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable: a rename counts after this, not before."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        answered(lambda: os.fsync(descriptor), lambda: f"fsync of the folder {path!s}")
    finally:
        os.close(descriptor)


def make_folder(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Have a folder, and those above it, with names that outlive a power cut.

    `mode` is that of the folder itself where it is made. Raises OSError.
    """
    folder = Path(os.path.abspath(path))
    above = folder.parent
    if not above.exists():
        make_folder(above)
    folder.mkdir(mode=mode, exist_ok=True)
    # Also where it is there: whoever made it may have died before its name was on the disk.
    with suppress(PermissionError):  # who may pass through a folder may not be allowed to open it
        fsync_dir(above)


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file by `data`, durably: a reader sees the old bytes or all the new ones.

    The folder must exist. Raises OSError, and then leaves the old file and no temporary one. Where
    only the folder could not be forced onto the disk, the new file is there: a power cut may bring
    the old one back.
    """
    _replace(path, data, is_forced=True)
    fsync_dir(os.path.dirname(path) or ".")


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file by `data`: a reader sees the old bytes or all the new ones. A power cut may
    lose both, so this is for what can be made again.

    The folder must exist. Raises OSError, and then leaves the old file and no temporary one.
    """
    _replace(path, data, is_forced=False)


def _replace(path: str | os.PathLike[str], data: bytes, *, is_forced: bool) -> None:
    # The temporary name does not repeat the target's, which may fill the 255 bytes of a name.
    temporary = os.path.join(os.path.dirname(path), f"{TEMPORARY}{unique()}")
    try:
        with open(temporary, "xb", buffering=0) as file:
            write_all(file.fileno(), data)
            if is_forced:
                fsync_file(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove the file if it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory with all that is in it; what is not there needs no removing.

    It is renamed to a hidden name first, so that no reader meets a half deleted checkpoint. What
    a crash leaves under the hidden name `sweep` removes. Of a symlink only the link goes.
    """
    aside = put_aside(path)
    if aside is not None:
        delete_tree(aside)


def put_aside(path: str | os.PathLike[str]) -> Path | None:
    """Rename a directory to a hidden name beside it, and return that; None if it is not there."""
    target = Path(path)
    aside = target.parent / f"{REMOVED}{unique()}"
    try:
        os.rename(target, aside)
    except FileNotFoundError:
        return None
    return aside


def is_leftover(name: str) -> bool:
    """Whether a file of this name is what an interrupted write or removal left."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep(folder: str | os.PathLike[str], before: float = float("inf")) -> None:
    """Remove what interrupted writes and removals left in a folder.

    Only what has not changed since `before` (seconds since 1970, by the file system's clock):
    what others write at this moment would go too. What cannot be removed is left to the next.
    """
    try:
        with os.scandir(folder) as entries:
            left = [entry for entry in entries if is_leftover(entry.name)]
    except FileNotFoundError:
        return
    for entry in left:
        with suppress(OSError):  # its owner was faster, or it is not ours to remove
            if entry.stat(follow_symlinks=False).st_ctime < before:
                delete_tree(Path(entry.path))


def delete_tree(path: Path) -> None:
    """Delete a directory that nobody looks for; another may be at it, too. Raises OSError."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        _rmtree(path)
    except PermissionError:
        _open_up(path)
        _rmtree(path)


def _rmtree(path: Path) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # whoever deletes it, too, was faster with a part of it
            shutil.rmtree(path)
        if not os.path.lexists(path):
            return
    shutil.rmtree(path)


def _open_up(path: Path) -> None:
    """Give ourselves the right to delete in it: staging keeps users' read-only folders so."""
    os.chmod(path, stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:
            child = os.path.join(folder, name)
            if not os.path.islink(child):
                os.chmod(child, stat.S_IRWXU)
