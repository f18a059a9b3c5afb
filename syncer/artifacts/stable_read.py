"""Reading files that may be written at this moment, so that only what a file really was is sent.

A file is read, and its times are looked at before and after. Where they differ it is being
written, and read once more: bytes that are the same both times stood in it together, at the
moment between the two. So it is with a log that grows, of which the part that was there is sent;
a file that is being overwritten gives other bytes, and is kept back until it stands still.
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
from holdfast.syncer.artifacts.scan import facts_of
from holdfast.syncer.files.copying import copy_bytes
from holdfast.syncer.files.durable import TEMPORARY, unique
from holdfast.syncer.files.regular import NotRegular

# Up to here a file is read into memory, and what was hashed is what is sent.
SMALL_BYTES = 4 << 20
_ATTEMPTS = 3
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StableRead:
    """A state that a file had: `source` is its bytes, or the file itself, or a copy of it.

    `facts` have the size of what is sent. `is_settled` says that a later change would show.
    """

    source: bytes | Path
    checksum: str
    facts: FileStat
    is_settled: bool
    is_copy: bool = False

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self.is_copy and isinstance(self.source, Path):
            self.source.unlink(missing_ok=True)


def read_steady(path: Path, *, copies: Path, small_bytes: int = SMALL_BYTES) -> StableRead | None:
    """A state of the file, None where it is being overwritten (or there is no room for a copy).

    `copies` is a folder on the same disk for the copy of a large file that grows. Of a large one
    that stood still while it was hashed `source` is the file itself: use `stands_still` when it
    was sent. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular("it is no regular file")
        if found.st_size > small_bytes:
            return _read_large(descriptor, path, copies)
        return _read_small(descriptor)
    finally:
        os.close(descriptor)


def stands_still(path: Path, facts: FileStat) -> bool:
    """Whether the file is what it was."""
    try:
        return facts_of(os.stat(path)) == facts
    except OSError:
        return False


def _read_small(descriptor: int) -> StableRead | None:
    for _ in range(_ATTEMPTS):
        before = facts_of(os.fstat(descriptor))
        data = os.pread(descriptor, before.size, 0)
        after = facts_of(os.fstat(descriptor))
        is_still = before == after
        if len(data) == before.size and (is_still or os.pread(descriptor, before.size, 0) == data):
            return StableRead(
                source=data,
                checksum=hashlib.sha256(data).hexdigest(),
                facts=before,
                is_settled=is_still and before.is_settled(time.time_ns()),
            )
    return None


def _read_large(descriptor: int, path: Path, copies: Path) -> StableRead | None:
    before = facts_of(os.fstat(descriptor))
    checksum = _hash(descriptor, before.size)
    if checksum is not None and facts_of(os.fstat(descriptor)) == before:
        settled = before.is_settled(time.time_ns())
        return StableRead(source=path, checksum=checksum, facts=before, is_settled=settled)
    return _copied(descriptor, copies)


def _copied(descriptor: int, copies: Path) -> StableRead | None:
    before = facts_of(os.fstat(descriptor))
    if shutil.disk_usage(copies).free < 2 * before.size:
        return None  # the journal needs the room more
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
    facts = before._replace(size=size)
    return StableRead(source=copy, checksum=checksum, facts=facts, is_settled=False, is_copy=True)


def _hash(descriptor: int, size: int) -> str | None:
    """The SHA-256 of the first `size` bytes, None if there are fewer."""
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
    """The SHA-256 of a file that nobody writes. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        return _hash(file.fileno(), os.fstat(file.fileno()).st_size) or ""
