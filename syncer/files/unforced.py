"""Files that an fsync has failed for: written anew before anything counts on them.

After such an fsync Linux has dropped what it could not write, and says nothing of that the next
time. So the bytes are copied to a new file, which takes the old one's place once it is on the
disk, and only if they are still those that were hashed before.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading

from holdfast.syncer.errors import NoAnswer, StorageError
from holdfast.syncer.files.durable import TEMPORARY, fsync_file, unique, write_all

_BUFFER_BYTES = 1 << 20
_Identity = tuple[int, int, int]


class BytesLost(StorageError):
    """The disk refused a file's bytes, and they are not in memory any more."""


class Unforced:
    """What could not be forced to the disk, as this process knows it: a retry that succeeds must
    not hide it. Used by several threads."""

    def __init__(self) -> None:
        self._checksums: dict[_Identity, str] = {}
        self._lock = threading.Lock()

    def force(self, descriptor: int, path: str, checksum: str, algorithm: str) -> None:
        """Make the open file durable, whose bytes have this checksum.

        Raises OSError where that is impossible now, BytesLost where they are gone.
        """
        facts = os.fstat(descriptor)
        # No other file's: a number that a removed file had may be another's, which is newer.
        identity = facts.st_dev, facts.st_ino, facts.st_ctime_ns
        with self._lock:
            expected = self._checksums.get(identity)
        if expected is None:
            try:
                fsync_file(descriptor, facts.st_size)
            except OSError as error:
                expected = checksum
                with self._lock:
                    self._checksums[identity] = expected
                # It would give no answer for another file either, and may fail for this one yet.
                if isinstance(error, NoAnswer):
                    raise
            else:
                return
        if checksum != expected:
            raise _lost(path)
        _write_anew(path, expected, algorithm)
        with self._lock:
            self._checksums.pop(identity, None)


def _write_anew(path: str, expected: str, algorithm: str) -> None:
    temporary = os.path.join(os.path.dirname(path), f"{TEMPORARY}{unique()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    facts = os.stat(path)
    copy = os.open(temporary, flags, 0o600)
    try:
        if _copy(path, copy, algorithm) != expected:
            raise _lost(path)
        os.fchmod(copy, stat.S_IMODE(facts.st_mode))
        os.utime(copy, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        fsync_file(copy, facts.st_size)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(copy)


def _copy(path: str, copy: int, algorithm: str) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_BUFFER_BYTES):
            digest.update(chunk)
            write_all(copy, chunk)
    return digest.hexdigest()


def _lost(path: str) -> BytesLost:
    return BytesLost(
        "force to the disk",
        path,
        "the disk refused it, and its bytes are not in memory any more",
        "Look at the disk: dmesg says more",
    )
