"""Reads files that may be changing, so that only a state that a file really had is sent.

A file is read, and its times are compared before and after. If they differ, it is being written,
and is read again: bytes that are equal both times were all in the file at the moment between the
two. This is how a growing log is sent, as far as it existed. A file that is being overwritten
gives different bytes, and is held back until it stops changing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.plan import FileStat
from holdfast.syncer.artifacts.scan import file_stat
from holdfast.syncer.files.copying import copy_bytes
from holdfast.syncer.files.durable import TEMPORARY, opened, unique
from holdfast.syncer.files.regular import NotRegular

# Up to this size a file is read into memory, so that the hashed bytes are those sent.
SMALL_BYTES = 4 << 20
_ATTEMPTS = 3
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StableRead:
    """A state that a file had: `source` is its bytes, the file itself, or a copy of it.

    `stat` has the size of the content to send. `is_settled`: a later change would change the
    times.
    """

    source: bytes | Path
    checksum: str
    stat: FileStat
    is_settled: bool
    is_copy: bool = False

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self.is_copy and isinstance(self.source, Path):
            self.source.unlink(missing_ok=True)


def read_stable(path: Path, *, copies: Path, small_bytes: int = SMALL_BYTES) -> StableRead | None:
    """A state of the file; None if it is being overwritten, or if there is no space for a copy.

    `copies` is a folder on the same disk, for the copy of a large file that grows. For a large
    file that did not change while it was hashed, `source` is the file itself: call `is_unchanged`
    after sending it. Raises OSError.
    """
    with opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular("it is not a regular file")
        if found.st_size > small_bytes:
            return _read_large(descriptor, path, copies)
        return _read_small(descriptor)


def is_unchanged(path: Path, known: FileStat) -> bool:
    """Whether the file is unchanged."""
    try:
        return file_stat(os.stat(path)) == known
    except OSError:
        return False


def _read_small(descriptor: int) -> StableRead | None:
    for _ in range(_ATTEMPTS):
        before = file_stat(os.fstat(descriptor))
        data = os.pread(descriptor, before.size, 0)
        after = file_stat(os.fstat(descriptor))
        is_still = before == after
        if len(data) == before.size and (is_still or os.pread(descriptor, before.size, 0) == data):
            return StableRead(
                source=data,
                checksum=hashlib.sha256(data).hexdigest(),
                stat=before,
                is_settled=is_still and before.is_settled(time.time_ns()),
            )
    return None


def _read_large(descriptor: int, path: Path, copies: Path) -> StableRead | None:
    before = file_stat(os.fstat(descriptor))
    checksum = _hash(descriptor, before.size)
    if checksum is not None and file_stat(os.fstat(descriptor)) == before:
        settled = before.is_settled(time.time_ns())
        return StableRead(source=path, checksum=checksum, stat=before, is_settled=settled)
    return _read_copy(descriptor, copies)


def _read_copy(descriptor: int, copies: Path) -> StableRead | None:
    before = file_stat(os.fstat(descriptor))
    if shutil.disk_usage(copies).free < 2 * before.size:
        return None  # leave the space to the journal
    copy = copies / f"{TEMPORARY}{unique()}"
    try:
        target = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            size = copy_bytes(descriptor, target, before.size)
            checksum = _hash(target, size)
        finally:
            os.close(target)
        if checksum is None or _hash(descriptor, size) != checksum:
            copy.unlink()
            return None
    except BaseException:
        with suppress(OSError):
            copy.unlink(missing_ok=True)
        raise
    known = before._replace(size=size)
    return StableRead(source=copy, checksum=checksum, stat=known, is_settled=False, is_copy=True)


def _hash(descriptor: int, size: int) -> str | None:
    """The SHA-256 of the first `size` bytes; None if there are fewer."""
    digest = hashlib.sha256(usedforsecurity=False)
    at = 0
    while at < size:
        data = os.pread(descriptor, min(size - at, _BUFFER_BYTES), at)
        if not data:
            return None
        digest.update(data)
        at += len(data)
    return digest.hexdigest()


def checksum_of(path: Path) -> str:
    """The SHA-256 of a file that no process writes. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        return _hash(file.fileno(), os.fstat(file.fileno()).st_size) or ""
