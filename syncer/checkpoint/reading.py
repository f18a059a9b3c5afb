"""Reading a local checkpoint, and removing it: neither comes in the other's way.

The locks are the kernel's (flock) and lie on the directory itself, which may be read-only: a
shared one for each reader, an exclusive one for the moment of a removal. A killed reader holds
nothing. Where a file system has no locks nobody is held up; on NFS the kernel keeps those of
directories to itself, so that readers on other machines are not seen.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.syncer.errors import CheckpointGone, DirectoryMissing, StorageError
from holdfast.syncer.files.durable import put_aside
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME, check_directory

# Claims stand in each place that an experiment is uploaded to, a lock where one is run in, and a
# journal in both.
LOCK, JOURNAL = ".lock", "journal"
LOCK_WORKERS = ".lock-workers"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
INCOMPLETE = "it has no manifest: it is not uploaded whole, or it is being removed"
_REMOVED = "A run removes the checkpoints that num_to_keep supersedes: ask for its newest or best"


class BeingRead(StorageError):
    """The directory cannot be removed now: somebody is reading it."""


@contextmanager
def reading(directory: str, operation: str) -> Iterator[None]:
    """Keep a directory from being removed meanwhile.

    Raises CheckpointGone if it is being removed or not whole, DirectoryMissing, UnusableFile.
    """
    descriptor = _enter(directory, operation)
    reader = os.getpid()
    try:
        yield
    finally:
        _leave(descriptor, reader)


@contextmanager
def unread(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Let nobody begin to read a directory that is to go. Raises BeingRead if somebody does."""
    descriptor = _opened(directory)
    try:
        if descriptor is not None:
            _exclude(descriptor, directory)
        yield
    finally:
        _leave(descriptor, os.getpid())


def retire(directory: Path) -> Path | None:
    """Take a directory out of sight unless it is being read; returns where it lies then.

    None if it is not there. Raises BeingRead, OSError.
    """
    with unread(directory):
        return put_aside(directory)


def missing(where: str, operation: str, cause: str) -> CheckpointGone:
    """The error for a checkpoint that was there once, or is not whole yet."""
    return CheckpointGone(operation, where, cause, _REMOVED)


def _opened(directory: str | os.PathLike[str]) -> int | None:
    """None for one that is not there, or that nobody may read in: it cannot be locked."""
    try:
        return os.open(directory, _DIRECTORY)
    except OSError:
        return None


def _enter(directory: str, operation: str) -> int | None:
    """A descriptor that holds the directory, None where there is nothing to hold it by."""
    while (descriptor := _opened(directory)) is not None:
        try:
            _share(descriptor, directory, operation)
            if _is_still(descriptor, directory, operation):
                _check_whole(directory, operation)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Another directory has come to stand here since it was opened.
        os.close(descriptor)
    try:
        check_directory(directory, operation)
    except DirectoryMissing as error:
        if not os.path.exists(f"{_experiment(directory)}/{JOURNAL}"):
            raise
        raise missing(directory, operation, error.cause) from error
    return None


def _share(descriptor: int, directory: str, operation: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise missing(directory, operation, "it is being removed") from error
    except OSError:
        return  # there are no locks on this file system


def _exclude(descriptor: int, directory: str | os.PathLike[str]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BeingRead("remove", os.fspath(directory), "it is being read") from error
    except OSError:
        return  # there are no locks on this file system


def _is_still(descriptor: int, directory: str, operation: str) -> bool:
    try:
        named = os.stat(directory)
    except FileNotFoundError as error:
        raise missing(directory, operation, "it was removed a moment ago") from error
    return os.path.samestat(named, os.fstat(descriptor))


def _check_whole(directory: str, operation: str) -> None:
    """Where experiments are uploaded to, a checkpoint without a manifest is on its way in or out;
    where one is run in, it is renamed into place, and elsewhere it was never ours."""
    if os.path.exists(f"{directory}/{MANIFEST_NAME}"):
        return
    experiment = _experiment(directory)
    if os.path.exists(f"{experiment}/{CLAIMS}") and not os.path.exists(f"{experiment}/{LOCK}"):
        raise missing(directory, operation, INCOMPLETE)


def _experiment(directory: str) -> str:
    """Where the experiment is, if the directory is a checkpoint of one."""
    return os.path.dirname(os.path.dirname(directory))


def _leave(descriptor: int | None, owner: int) -> None:
    """Unlocked, not only closed: a child that was forked meanwhile has the descriptor too. Where
    that child is what leaves, the lock is still its parent's."""
    if descriptor is None:
        return
    try:
        if os.getpid() == owner:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass  # there are no locks on this file system
    finally:
        os.close(descriptor)
