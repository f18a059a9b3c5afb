"""One local copy of a remote checkpoint per machine, however many processes read it.

Copies lie in a folder of the user's own below the temporary directory, named by the identity of
their content: `<id>/` holds the files, `<id>.gate` is locked by the one who downloads, enters or
leaves, and `<id>.readers` is locked, shared, by all who read. The locks are the kernel's (flock):
a killed reader holds nothing, and whoever comes next removes what nobody reads any more.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.syncer.download import fetch, look, with_store
from holdfast.syncer.durable import remove_tree, sweep
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.location import Location

_COPY = re.compile(r"([0-9a-f]{32})(\.\w+)?")


@contextmanager
def shared_copy(location: Location) -> Iterator[Path]:
    """A directory to read the remote folder in; do not write there.

    Downloads it unless another process of this user did, or waits for the one that does. The last
    one to leave removes it. Raises DirectoryMissing, ManifestMismatch or another StorageError.
    """
    cache = cache_folder()
    _remove_unread(cache)
    remote = with_store(location, look)
    copy, partial = cache / remote.identity, cache / f"{remote.identity}.partial"
    with _gate(copy):
        if not copy.is_dir():
            remove_tree(partial)
            try:
                with_store(location, lambda store: fetch(store, remote, partial))
                os.rename(partial, copy)
            except BaseException:
                _remove_if_unread(copy)
                raise
        reader = os.open(f"{copy}.readers", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(reader, fcntl.LOCK_SH)
    try:
        yield copy
    finally:
        # Unlocked, not only closed: a child that was forked meanwhile has the descriptor too.
        fcntl.flock(reader, fcntl.LOCK_UN)
        os.close(reader)
        with _gate(copy):
            _remove_if_unread(copy)


def cache_folder() -> Path:
    """The user's folder of copies, made if need be. Raises StorageRefused if it is another's."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = os.lstat(folder)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise StorageRefused(
            "download to",
            str(folder),
            "this folder belongs to another user or others may write to it",
            "Remove it, or set TMPDIR to a directory of your own",
        )
    return folder


@contextmanager
def _gate(copy: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the gate of a copy. Raises BlockingIOError if it is held and one will not wait.

    Waiting has no deadline of its own: the holder's operations have, and a dead one holds nothing.
    """
    flags = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        gate = os.open(f"{copy}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(gate, flags)
            # The one before may have removed the file while we waited: then its lock is nobody's.
            if os.fstat(gate).st_nlink:
                yield
                return
        finally:
            os.close(gate)


def _remove_if_unread(copy: Path) -> None:
    """With the gate held: remove the copy and its lock files unless someone reads it."""
    readers = os.open(f"{copy}.readers", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Remove the copies whose readers were killed."""
    for copy in {cache / match[1] for match in map(_COPY.fullmatch, os.listdir(cache)) if match}:
        try:
            with _gate(copy, wait=False):
                _remove_if_unread(copy)
        except BlockingIOError:
            continue
    sweep(cache)
