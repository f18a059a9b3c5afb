"""One local copy of a remote checkpoint per machine, however many processes read it.

Copies lie in a folder of the user's own below the temporary directory (processes whose TMPDIR is
another have other ones), named by the identity of their content: `<id>/` holds the files,
`<id>.gate` is locked by the one who downloads, enters or leaves, and `<id>.readers` is locked,
shared, by all who read. The locks are the kernel's (flock): a killed reader holds nothing, and
whoever comes or leaves next removes what nobody reads any more. Where the one who downloads makes
no progress (somebody has stopped it), whoever waits for it downloads a copy of its own.
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
from holdfast.syncer.errors import StorageError, StorageRefused, from_os_error
from holdfast.syncer.files.durable import remove_tree, sweep
from holdfast.syncer.files.tree import bytes_below
from holdfast.syncer.stores.location import Location

_COPY = re.compile(r"([0-9a-f]{32})(\.\w+)?")
# How long another process may hold a gate without bringing a byte, and how long one waits to tidy
# up.
_STALLED_S = 60.0
_TIDY_S = 2.0
_LONGEST_PAUSE_S = 0.1


@contextmanager
def shared_copy(location: Location) -> Iterator[Path]:
    """A directory to read the remote folder in; do not write there.

    Downloads it unless another process of this user did, or waits for the one that does. The last
    one to leave removes it. Raises CheckpointGone, DirectoryMissing, ManifestMismatch or another
    StorageError.
    """
    cache = cache_folder()
    _remove_unread(cache)
    copy, lock = on_what_is_there(location, lambda remote: _enter_any(cache, location, remote))
    reader = os.getpid()
    try:
        yield copy
    finally:
        # In a child that was forked meanwhile and leaves the block, too, it is its parent's.
        if os.getpid() == reader:
            _leave(copy, lock)
        else:
            os.close(lock)


def cache_folder() -> Path:
    """The user's folder of copies, made if need be. Raises StorageRefused if it is another's."""
    folder = _cache_folder()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise from_os_error(error, "download to", str(folder)) from error
    if not _is_our_own(folder):
        raise StorageRefused(
            "download to",
            str(folder),
            "this folder belongs to another user or others may write to it",
            "Remove it, or set TMPDIR to a directory of your own",
        )
    return folder


def remove_unread() -> None:
    """Remove the copies whose readers were killed, in this process's temporary directory."""
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
    """As `_enter`: the copy of all, or one of its own where nothing moves there."""
    try:
        return _enter(cache / remote.identity, location, remote)
    except BlockingIOError:
        return _enter(cache / uuid4().hex, location, remote)


def _enter(copy: Path, location: Location, remote: Remote) -> tuple[Path, int]:
    """The copy, and a descriptor that holds it. Downloads it if it is not there.

    Raises BlockingIOError where another process holds its gate and makes no progress.
    """
    partial = copy.with_name(f"{copy.name}.partial")
    with _gate(copy, _STALLED_S, progress=lambda: bytes_below(str(partial))):
        if not copy.is_dir():
            remove_tree(partial)
            try:
                with_store(location, lambda store: fetch(store, remote, partial))
                os.rename(partial, copy)
            except BaseException as error:
                _remove_if_unread(copy)
                if isinstance(error, StorageError) and _is_for_want_of_space(error):
                    error.advice = f"Make space in {copy.parent}, or set TMPDIR to a larger disk"
                raise
        lock = _lock_file(copy, "readers")
        _lock(lock, fcntl.LOCK_SH)
    return copy, lock


def _is_for_want_of_space(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def _leave(copy: Path, lock: int) -> None:
    # Unlocked, not only closed: a child that was forked meanwhile has the descriptor too.
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
    with suppress(OSError), _gate(copy, _TIDY_S):  # what cannot go now is in nobody's way
        _remove_if_unread(copy)


@contextmanager
def _gate(
    copy: Path, wait_s: float = 0.0, progress: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Hold the gate of a copy. Raises BlockingIOError if another holds it for `wait_s` seconds in
    which `progress` stays what it was."""
    while True:
        gate = _lock_file(copy, "gate")
        try:
            _lock_in_time(gate, wait_s, progress)
            # The one before may have removed the file while we waited: then its lock is nobody's.
            if os.fstat(gate).st_nlink:
                yield
                return
        finally:
            # As above: a child that another thread has forked would hold it for all its life.
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
    """With the gate held: remove the copy and its lock files unless someone reads it."""
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
        # Held by whoever downloads, enters or leaves; or not to be removed by us.
        with suppress(OSError), _gate(copy):
            _remove_if_unread(copy)
    sweep(cache)
