"""The folder for a process's shared objects, in memory or on the disk.

    <root>/holdfast-objects-<user>/<process>-<random>/<object>

The process keeps the folder locked as long as it lives. So a folder without a lock belongs to a
process that has ended, for whatever reason, and can be removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.runtime.objects.mapped import Pickled, write
from holdfast.trees import try_to_delete

FOLDER = "HOLDFAST_OBJECTS_DIR"
_MEMORY = "/dev/shm"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# One tenth of a file system in memory is left for other programs, such as torch's data loaders.
_LEFT_OF_MEMORY = 10
_CGROUP = Path("/sys/fs/cgroup")


class NoRoom(OSError):
    """No place has room for an object; the message says how much each one had."""


class ForeignFolder(OSError):
    """Other users can write to the folder for objects, so its contents cannot be trusted."""


class ObjectFolder:
    """The objects of this process: one folder in each place that has some of them.

    Objects belong to one process: a forked child has none of its parent's.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._roots = roots(environ)
        self._folders: dict[str, tuple[str, int]] = {}

    def put(self, name: str, value: Pickled) -> str:
        """Write the value to a file, which gets its name when it is complete. Returns the path.

        Raises NoRoom if no place has room for it, or another OSError.
        """
        told = []
        for root in self._roots:
            free = _free_bytes(root)
            told.append(f"{root}: {max(0, free):,} bytes")
            if root == _MEMORY and not _memory_has_room(value.file_bytes, free):
                continue
            try:
                return self._write(root, name, value)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
        raise NoRoom(errno.ENOSPC, f"it takes {value.file_bytes:,} bytes ({'; '.join(told)})")

    def close(self) -> None:
        """Remove all objects. Processes that have mapped one can still read it."""
        while self._folders:
            root, (folder, fd) = self._folders.popitem()
            _remove(root, folder, fd)

    def forsake(self) -> None:
        """In a forked child: close the descriptors; the folders belong to the parent."""
        for _, fd in self._folders.values():
            os.close(fd)
        self._folders.clear()

    def _write(self, root: str, name: str, value: Pickled) -> str:
        if root not in self._folders:
            self._folders[root] = _new_folder(root)
        path = os.path.join(self._folders[root][0], name)
        write(f"{path}.part", value)
        os.rename(f"{path}.part", path)
        return path


def roots(environ: Mapping[str, str]) -> Sequence[str]:
    """The places for objects, the best one first."""
    if environ.get(FOLDER):
        return (os.path.abspath(os.path.expanduser(environ[FOLDER])),)
    disk = _temporary_folder()
    return (_MEMORY, disk) if os.access(_MEMORY, os.W_OK | os.X_OK) else (disk,)


def _temporary_folder() -> str:
    try:
        import tempfile

        return os.path.abspath(tempfile.gettempdir())
    except FileNotFoundError:  # no folder is writable: the next write reports the error
        return "/tmp"


class TemporaryFolder:
    """A folder on the disk for files of this process. `remove_abandoned` removes it if the
    process was killed. Raises OSError."""

    def __init__(self) -> None:
        self._root = _temporary_folder()
        self.path, self._fd = _new_folder(self._root)

    def remove(self) -> None:
        _remove(self._root, self.path, self._fd)


def remove_abandoned(environ: Mapping[str, str]) -> None:
    """Remove the objects and files of processes that ended without removing them."""
    for root in dict.fromkeys((*roots(environ), _temporary_folder())):
        for folder in _folders(_base(root)):
            with suppress(OSError):  # its process lives, or another process has removed it
                fd = _lock(folder)
                try:
                    try_to_delete(folder)
                finally:
                    os.close(fd)
        with suppress(OSError):  # it is not empty, or does not exist
            os.rmdir(_base(root))


def _base(root: str) -> str:
    return os.path.join(root, f"holdfast-objects-{os.getuid()}")


def _folders(base: str) -> Iterator[str]:
    try:
        _check_own(base)
        names = os.listdir(base)
    except OSError:
        return
    yield from (os.path.join(base, name) for name in names)


def _check_own(base: str) -> None:
    """Raise ForeignFolder if another user could have written to the folder."""
    found = os.lstat(base)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ForeignFolder(
            errno.EPERM, "it must be a folder that only this user can write to", base
        )


def _new_folder(root: str) -> tuple[str, int]:
    """Create a folder. Returns its path and the descriptor that holds its lock."""
    base = _base(root)
    while True:
        with suppress(FileExistsError):
            os.makedirs(base, mode=0o700)
        _check_own(base)
        import secrets

        folder = os.path.join(base, f"{os.getpid()}-{secrets.token_hex(4)}")
        try:
            os.mkdir(folder, 0o700)
            fd = _lock(folder)
        except (FileNotFoundError, BlockingIOError):
            continue  # another process removed or locked it before this process had locked it
        if os.path.isdir(folder):
            return folder, fd
        os.close(fd)


def _remove(root: str, folder: str, fd: int) -> None:
    """Remove a folder of this process, and end its lock."""
    try_to_delete(folder)  # the next run removes the rest
    os.close(fd)
    with suppress(OSError):  # other processes have folders there
        os.rmdir(_base(root))


def _lock(folder: str) -> int:
    """Lock a folder. Raises BlockingIOError if another descriptor, here or elsewhere, has the
    lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _free_bytes(root: str) -> int:
    try:
        found = os.statvfs(root)
    except FileNotFoundError:
        return 0
    free = found.f_bavail * found.f_frsize
    return free - found.f_blocks * found.f_frsize // _LEFT_OF_MEMORY if root == _MEMORY else free


def _memory_has_room(size: int, free: int) -> bool:
    """Whether as much memory as the object takes is left for the processes that use it."""
    import psutil

    available = min(psutil.virtual_memory().available, _left_of_cgroup())
    return size <= free and 2 * size <= available


def _left_of_cgroup() -> float:
    """The bytes of memory that this container may still use; infinite without a limit."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - used
