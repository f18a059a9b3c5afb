"""One local copy of a remote checkpoint per machine, shared by all processes that read it.

Copies are in a folder of the user below the temporary directory (processes with another TMPDIR
have their own), named by the identity of their content: `<id>/` has the files, `<id>.gate` is
locked by a process that downloads, enters or leaves, and `<id>.readers` is locked, shared, by all
readers. The locks are the kernel's (flock): a killed reader holds none, and the next process to
enter or leave removes unread copies. If the downloading process makes no progress (it may be
suspended), a waiting process downloads its own copy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from holdfast.syncer.checkpoint.download import Remote, fetch, on_what_is_there, with_store
from holdfast.syncer.errors import StorageError, StorageRefused, os_errors
from holdfast.syncer.files.durable import remove_leftovers_in, remove_tree
from holdfast.syncer.files.tree import growth_below
from holdfast.syncer.stores.location import Location

_COPY = re.compile(r"([0-9a-f]{32})(\.\w+)?")
# How long another process may hold a gate without progress, and how long to wait when tidying up.
_STALLED_S = 60.0
_TIDY_S = 2.0
_LONGEST_PAUSE_S = 0.1


@contextmanager
def shared_copy(location: Location) -> Iterator[Path]:
    """A local directory with the content of a remote folder; read-only.

    Downloads it unless another process of this user has, or waits for the one that does. The last
    reader removes it. Raises CheckpointGone, DirectoryMissing, ManifestMismatch or another
    StorageError.
    """
    cache = cache_folder()
    _remove_unread(cache)
    copy, lock = on_what_is_there(location, lambda remote: _enter_any(cache, location, remote))
    reader = os.getpid()
    try:
        yield copy
    finally:
        # In a child that was forked meanwhile and leaves the block, the lock belongs to the
        # parent.
        if os.getpid() == reader:
            _leave(copy, lock)
        else:
            os.close(lock)


def cache_folder() -> Path:
    """The user's folder of copies, created if necessary. Raises StorageRefused if it is another
    user's."""
    folder = _cache_folder()
    with os_errors("download to", str(folder)):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_our_own(folder):
        raise StorageRefused(
            "download to",
            str(folder),
            "this folder belongs to another user, or others may write to it",
            "Remove it, or set TMPDIR to your own directory",
        )
    return folder


def remove_unread() -> None:
    """Remove copies whose readers were killed, in this process's temporary directory."""
    with suppress(FileNotFoundError):
        if _is_our_own(_cache_folder()):
            _remove_unread(_cache_folder())


def _cache_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"


def _is_our_own(folder: Path) -> bool:
    facts = os.lstat(folder)
    is_safe = facts.st_uid == os.getuid() and not facts.st_mode & 0o022
    return stat.S_ISDIR(facts.st_mode) and is_safe


def _enter_any(cache: Path, location: Location, remote: Remote) -> tuple[Path, int]:
    """Like `_enter`, but with a separate copy if the shared one makes no progress."""
    try:
        return _enter(cache / remote.identity, location, remote)
    except BlockingIOError:
        return _enter(cache / uuid4().hex, location, remote)


def _enter(copy: Path, location: Location, remote: Remote) -> tuple[Path, int]:
    """The copy and a descriptor that locks it. Downloads it if it is missing.

    Raises BlockingIOError if another process holds its gate and makes no progress.
    """
    partial = copy.with_name(f"{copy.name}.partial")
    with _gate(copy, _STALLED_S, progress=lambda: growth_below(str(partial))):
        if not copy.is_dir():
            remove_tree(partial)
            try:
                with_store(location, lambda store: fetch(store, remote, partial))
                os.rename(partial, copy)
            except BaseException as error:
                _remove_if_unread(copy)
                if isinstance(error, StorageError) and _is_disk_full(error):
                    error.advice = f"Free space in {copy.parent}, or set TMPDIR to a larger disk"
                raise
        lock = _lock_file(copy, "readers")
        _lock(lock, fcntl.LOCK_SH)
    return copy, lock


def _is_disk_full(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def _leave(copy: Path, lock: int) -> None:
    # Unlock, not only close: a child that was forked meanwhile has the descriptor as well.
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
    with suppress(OSError), _gate(copy, _TIDY_S):  # a leftover does no harm
        _remove_if_unread(copy)


@contextmanager
def _gate(
    copy: Path, wait_s: float = 0.0, progress: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Hold the gate of a copy.

    Raises BlockingIOError if another process holds it for `wait_s` seconds without `progress`.
    """
    while True:
        gate = _lock_file(copy, "gate")
        try:
            _lock_in_time(gate, wait_s, progress)
            # The previous holder may have removed the file meanwhile: then the lock is
            # meaningless.
            if os.fstat(gate).st_nlink:
                yield
                return
        finally:
            # As above: a child that another thread has forked would hold it forever.
            with suppress(OSError):
                fcntl.flock(gate, fcntl.LOCK_UN)
            os.close(gate)


def _lock_in_time(gate: int, wait_s: float, progress: Callable[[], int]) -> None:
    until, pause_s, before = time.monotonic() + wait_s, 0.001, progress()
    while True:
        try:
            _lock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                if before == (before := progress()):
                    raise
                until = time.monotonic() + wait_s
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _lock_file(copy: Path, kind: str) -> int:
    return os.open(f"{copy}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int, flags: int) -> None:
    try:
        fcntl.flock(descriptor, flags)
    except BlockingIOError:
        raise
    except OSError as error:
        raise StorageRefused(
            "lock in",
            str(_cache_folder()),
            error.strerror or str(error),
            "This file system has no locks: set TMPDIR to a directory on a local disk",
        ) from error


def _remove_if_unread(copy: Path) -> None:
    """Remove the copy and its lock files, with the gate held, unless a process reads it."""
    readers = _lock_file(copy, "readers")
    try:
        fcntl.flock(readers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(copy)
        remove_tree(f"{copy}.partial")
        os.unlink(f"{copy}.readers")
        os.unlink(f"{copy}.gate")
    except BlockingIOError:
        return
    finally:
        os.close(readers)


def _remove_unread(cache: Path) -> None:
    for copy in {cache / match[1] for match in map(_COPY.fullmatch, os.listdir(cache)) if match}:
        # Skip copies whose gate is locked, or that may not be removed.
        with suppress(OSError), _gate(copy):
            _remove_if_unread(copy)
    remove_leftovers_in(cache)
