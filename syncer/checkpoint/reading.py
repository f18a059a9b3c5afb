"""Lets readers and removals of a checkpoint exclude each other.

The locks are the kernel's (flock), on the directory itself, which may be read-only: a shared one
for each reader, an exclusive one for the moment of a removal. A killed reader holds no lock. On a
file system without locks nothing is excluded; on NFS the kernel keeps locks of directories local,
so readers on other machines are not seen.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.syncer.errors import CheckpointGone, DirectoryMissing, StorageError
from holdfast.syncer.files.durable import put_aside
from holdfast.syncer.files.tree import (
    CLAIMS,
    MANIFEST_NAME,
    check_directory,
    read_regular,
)

# An experiment's folder in storage has claims, one where it runs has a lock, and both have a
# journal.
LOCK, JOURNAL = ".lock", "journal"
LOCK_WORKERS = ".lock-workers"
# In the content of the lock: whether nodes of a cluster upload to the folder.
HAS_NODES = "has_nodes"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
INCOMPLETE = "it has no manifest: its upload is incomplete, or it is being removed"
_REMOVED = "A run removes the checkpoints that num_to_keep supersedes: use its newest or best one"


class BeingRead(StorageError):
    """The directory cannot be removed now, because a process is reading it."""


@contextmanager
def reading(directory: str, operation: str) -> Iterator[None]:
    """Prevent the removal of a directory while it is read.

    Raises CheckpointGone if it is being removed or incomplete, DirectoryMissing, UnusableFile.
    """
    descriptor = _enter(directory, operation)
    reader = os.getpid()
    try:
        yield
    finally:
        _leave(descriptor, reader)


@contextmanager
def unread(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Prevent new readers of a directory that will be removed. Raises BeingRead if it has
    readers."""
    descriptor = _open_directory(directory)
    try:
        if descriptor is not None and not _locks(descriptor, fcntl.LOCK_EX):
            raise BeingRead("remove", os.fspath(directory), "it is being read")
        yield
    finally:
        _leave(descriptor, os.getpid())


def retire(directory: Path) -> Path | None:
    """Rename a directory that no process reads, before its removal; return its new path.

    None if it does not exist. Raises BeingRead, OSError.
    """
    with unread(directory):
        return put_aside(directory)


def missing(where: str, operation: str, cause: str) -> CheckpointGone:
    """The error for a checkpoint that has been removed, or is incomplete."""
    return CheckpointGone(operation, where, cause, _REMOVED)


def _open_directory(directory: str | os.PathLike[str]) -> int | None:
    """A descriptor; None if the directory is missing or unreadable: it cannot be locked."""
    try:
        return os.open(directory, _DIRECTORY)
    except OSError:
        return None


def _enter(directory: str, operation: str) -> int | None:
    """A descriptor with a shared lock on the directory; None if it cannot be locked."""
    while (descriptor := _open_directory(directory)) is not None:
        try:
            if not _locks(descriptor, fcntl.LOCK_SH):
                raise missing(directory, operation, "it is being removed")
            if _is_still(descriptor, directory, operation):
                _check_whole(directory, operation)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Another directory has replaced it since it was opened.
        os.close(descriptor)
    try:
        check_directory(directory, operation)
    except DirectoryMissing as error:
        if not os.path.exists(f"{_experiment(directory)}/{JOURNAL}"):
            raise
        raise missing(directory, operation, error.cause) from error
    return None


def _locks(descriptor: int, how: int) -> bool:
    """Take a lock without waiting; return False if another process holds one."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # this file system has no locks
    return True


def _is_still(descriptor: int, directory: str, operation: str) -> bool:
    try:
        named = os.stat(directory)
    except FileNotFoundError as error:
        raise missing(directory, operation, "it has just been removed") from error
    return os.path.samestat(named, os.fstat(descriptor))


def _check_whole(directory: str, operation: str) -> None:
    """Raise CheckpointGone for a checkpoint without manifest in storage.

    There it is being uploaded or removed. Where a run is, checkpoints are renamed into place,
    unless nodes upload them there, and elsewhere they are not holdfast's.
    """
    if os.path.exists(f"{directory}/{MANIFEST_NAME}"):
        return
    experiment = _experiment(directory)
    if os.path.exists(f"{experiment}/{CLAIMS}") and not _is_staged_to(experiment):
        raise missing(directory, operation, INCOMPLETE)


def _is_staged_to(experiment: str) -> bool:
    """True if the newest run in this folder renames whole checkpoints into place. Its lock says
    so (`ExperimentLock`)."""
    try:
        found = json.loads(read_regular(f"{experiment}/{LOCK}") or b"{}")
    except (FileNotFoundError, PermissionError):
        return False
    except (OSError, ValueError, RecursionError):
        return True
    return not isinstance(found, dict) or found.get(HAS_NODES) is not True


def is_whole(directory: Path) -> bool:
    """True if the directory is there, and no part of an upload."""
    try:
        with reading(str(directory), "look at"):
            return True
    except StorageError:
        return False


def _experiment(directory: str) -> str:
    """The folder of the experiment, if the directory is a checkpoint of one."""
    return os.path.dirname(os.path.dirname(directory))


def _leave(descriptor: int | None, owner: int) -> None:
    """Unlock and close: a child that was forked meanwhile has the descriptor as well.

    In such a child the lock still belongs to the parent.
    """
    if descriptor is None:
        return
    try:
        if os.getpid() == owner:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass  # this file system has no locks
    finally:
        os.close(descriptor)
