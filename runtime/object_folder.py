"""Where the objects of a process lie: a folder of its own, in memory or on the disk.

    <root>/holdfast-objects-<user>/<process>-<random>/<object>

The folder is locked for as long as its process lives, so that whoever finds one without a lock
knows that nobody will need it any more, whatever has killed its process, and removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.runtime.mapped import Pickled, write

FOLDER = "HOLDFAST_OBJECTS_DIR"
_MEMORY = "/dev/shm"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Of a file system in memory this part is left to others, such as torch's data loaders.
_LEFT_OF_MEMORY = 10
_CGROUP = Path("/sys/fs/cgroup")


class NoRoom(OSError):
    """None of the places has room for an object; the message says how much each one had."""


class ForeignFolder(OSError):
    """The folder for objects is not this user's alone: what lies there could be anybody's."""


class ObjectFolder:
    """The objects that this process has put, in as many folders as there are places for them.

    One for each process: a child that was forked has none of its parent's.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._roots = roots(environ)
        self._folders: dict[str, tuple[str, int]] = {}

    def put(self, name: str, value: Pickled) -> str:
        """Keep the value as a file that is complete once it has its name; returns its path.

        Raises OSError, NoRoom if no place has room for it.
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
        """Remove all objects. Who has mapped one keeps what it has mapped."""
        while self._folders:
            root, (folder, fd) = self._folders.popitem()
            shutil.rmtree(folder, ignore_errors=True)  # the next run sweeps what is left
            os.close(fd)
            with suppress(OSError):  # others have theirs there
                os.rmdir(_base(root))

    def forsake(self) -> None:
        """In a forked child: leave everything to the parent, whose lock it is."""
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
    """Where objects may lie, the best place first."""
    if environ.get(FOLDER):
        return (os.path.abspath(os.path.expanduser(environ[FOLDER])),)
    disk = _temporary_folder()
    return (_MEMORY, disk) if os.access(_MEMORY, os.W_OK | os.X_OK) else (disk,)


def _temporary_folder() -> str:
    try:
        return os.path.abspath(tempfile.gettempdir())
    except FileNotFoundError:  # each is full, or cannot be written: putting something there tells
        return "/tmp"


def sweep(environ: Mapping[str, str]) -> None:
    """Remove the objects of processes that have ended without doing it themselves."""
    for root in roots(environ):
        for folder in _folders(_base(root)):
            with suppress(OSError):  # its process lives, or another has swept it away
                fd = _locked(folder)
                try:
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(fd)
        with suppress(OSError):  # there are others, or there was none
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
    """Raises ForeignFolder where somebody else could have put something there."""
    found = os.lstat(base)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ForeignFolder(
            errno.EPERM, "it is not a folder that only this user can write to", base
        )


def _new_folder(root: str) -> tuple[str, int]:
    """A folder, and the descriptor that holds its lock."""
    base = _base(root)
    while True:
        with suppress(FileExistsError):
            os.makedirs(base, mode=0o700)
        _check_own(base)
        folder = os.path.join(base, f"{os.getpid()}-{secrets.token_hex(4)}")
        try:
            os.mkdir(folder, 0o700)
            fd = _locked(folder)
        except (FileNotFoundError, BlockingIOError):
            continue  # a sweep took it for a dead one's between two steps
        if os.path.isdir(folder):
            return folder, fd
        os.close(fd)


def _locked(folder: str) -> int:
    """Raises BlockingIOError where another process, or another part of this one, has the lock."""
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
    """Whether it leaves as much memory as it takes to those that will work with it."""
    import psutil

    available = min(psutil.virtual_memory().available, _left_of_cgroup())
    return size <= free and 2 * size <= available


def _left_of_cgroup() -> float:
    """Bytes that this container may still use; endless where nothing limits it."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - used
