"""The scratch folder of an agent: <root>/holdfast-nodes-<user>/<process>-<random>.

The agent keeps it locked as long as it lives. A folder without a lock belongs to an agent that was
killed: the next agent on the node removes it. What `keep` has moved to
<root>/holdfast-kept-<user>/<process>-<random> stays until the user removes it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.trees import try_to_delete


class ForeignFolder(OSError):
    """Another user can write to the folder, so nothing in it can be trusted."""


@contextmanager
def scratch_folder(root: str = "") -> Iterator[str]:
    """A new folder that only this user can read, removed at the end. `root` is an existing folder,
    by default that for temporary files. Raises OSError."""
    root = os.path.abspath(root or tempfile.gettempdir())
    base = os.path.join(root, f"holdfast-nodes-{os.getuid()}")
    with suppress(FileExistsError):
        os.makedirs(base, mode=0o700)
    _check_own(base)
    _remove_abandoned(base)
    folder, lock = _make(base)
    try:
        yield folder
    finally:
        try_to_delete(folder)
        os.close(lock)
        with suppress(OSError):  # other agents have folders there
            os.rmdir(base)


def keep(folder: str, part: str) -> str:
    """Move a part of an agent's scratch folder to where no agent removes it, with one rename.
    Returns its new path, which only this user can read. Raises OSError."""
    root = os.path.dirname(os.path.dirname(folder))
    base = os.path.join(root, f"holdfast-kept-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(base, mode=0o700)
    _check_own(base)
    kept = os.path.join(base, os.path.basename(folder))
    os.rename(os.path.join(folder, part), kept)
    for above in (base, root):
        _force(above)
    return kept


def _force(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _check_own(base: str) -> None:
    found = os.lstat(base)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ForeignFolder(f"{base} must be a folder that only this user can write to")


def _make(base: str) -> tuple[str, int]:
    while True:
        folder = os.path.join(base, f"{os.getpid()}-{secrets.token_hex(4)}")
        try:
            os.makedirs(folder, mode=0o700)
            lock = _lock(folder)
        except (FileNotFoundError, BlockingIOError):
            continue  # another agent took it for an abandoned one, before it was locked
        if os.path.isdir(folder):
            return folder, lock
        os.close(lock)


def _remove_abandoned(base: str) -> None:
    for name in os.listdir(base):
        folder = os.path.join(base, name)
        with suppress(OSError):  # its agent lives, or another one has removed it
            lock = _lock(folder)
            try:
                try_to_delete(folder)
            finally:
                os.close(lock)


def _lock(folder: str) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock
