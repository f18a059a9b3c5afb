"""Rewrites files after a failed fsync.

After a failed fsync Linux may have dropped the pages that it could not write, and the next fsync
succeeds nevertheless. So the bytes are copied to a new file, which replaces the old one when it is
forced to the disk, if the bytes still have the checksum that was computed before.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading

from holdfast.syncer.errors import NoAnswer, StorageError
from holdfast.syncer.files.durable import fsync_file, new_file_for, write_all

_BUFFER_BYTES = 1 << 20
_UNKNOWN = ""  # the checksum of no file
_Identity = tuple[int, int, int]


class BytesLost(StorageError):
    """The disk refused a file's bytes, and memory no longer has them."""


class Unforced:
    """The files for which an fsync has failed in this process; a successful retry must not hide
    that. Used by several threads."""

    def __init__(self) -> None:
        self._checksums: dict[_Identity, str] = {}
        self._lock = threading.Lock()

    def force(
        self,
        descriptor: int,
        path: str,
        checksum: str,
        *,
        failure: OSError | None = None,
    ) -> None:
        """Force an open file to the disk; its bytes have this SHA-256. With `failure`, the disk
        has already refused some of them.

        Raises OSError if that is impossible now, BytesLost if the bytes are lost.
        """
        facts = os.fstat(descriptor)
        identity = _identity(facts)
        with self._lock:
            expected = self._checksums.get(identity)
        if expected is None:
            try:
                if failure is not None:
                    raise failure
                fsync_file(descriptor, facts.st_size)
            except OSError as error:
                expected = checksum
                with self._lock:
                    self._checksums[identity] = expected
                # Another file would get no answer either, and this fsync may still fail.
                if isinstance(error, NoAnswer):
                    raise
            else:
                return
        if checksum != expected:
            raise _lost(path)
        _write_anew(path, expected)
        with self._lock:
            self._checksums.pop(identity, None)

    def doubt(self, descriptor: int) -> None:
        """The disk has refused bytes of this open file, and nobody knows its checksum: it can
        never be forced."""
        identity = _identity(os.fstat(descriptor))
        with self._lock:
            self._checksums.setdefault(identity, _UNKNOWN)


def _identity(facts: os.stat_result) -> _Identity:
    # With the ctime, because a new file may have the inode number of a removed one.
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns


def _write_anew(path: str, expected: str) -> None:
    facts = os.stat(path)
    with new_file_for(path, 0o600) as file:
        copy = file.fileno()
        if _copy(path, copy) != expected:
            raise _lost(path)
        os.fchmod(copy, stat.S_IMODE(facts.st_mode))
        os.utime(copy, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        fsync_file(copy, facts.st_size)


def _copy(path: str, copy: int) -> str:
    digest = hashlib.sha256(usedforsecurity=False)
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_BUFFER_BYTES):
            digest.update(chunk)
            write_all(copy, chunk)
    return digest.hexdigest()


def _lost(path: str) -> BytesLost:
    return BytesLost(
        "force to the disk",
        path,
        "the disk refused it, and memory no longer has its bytes",
        "Check the disk: dmesg says more",
    )
