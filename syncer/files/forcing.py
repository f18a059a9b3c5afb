"""Forces many files to the disk, and lets other work on that disk proceed meanwhile.

An fsync of each of 1,000 small files makes the file system commit its journal 1,000 times. So the
bytes of some files are first sent to the disk, and then each gets its fsync: one commit has them
all. A large file is sent in pieces while it is read, and only two of them are on their way at a
time: the requests of others then wait for these, and not for a whole checkpoint.

After a failed fsync Linux may have dropped the pages that it could not write, and the next fsync
succeeds nevertheless. So the bytes are copied to a new file, which replaces the old one when it is
forced to the disk, if the bytes still have the checksum that was computed before (`Unforced`).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from io import FileIO
from typing import Any, Final, Self

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import NoAnswer, StorageError, os_errors
from holdfast.syncer.files.durable import answered, fsync_file, new_file_for, write_all

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


# Each of them keeps a descriptor until its fsync: an error is reported to a descriptor that was
# open when it occurred, and a file that nobody has open may be forgotten with its error.
_FILES_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 16 << 20
_PIECE_BYTES: Final = 8 << 20
# linux/fs.h
_WAIT_BEFORE: Final = 1
_WRITE: Final = 2
# These errors mean that the call does not work here; others are failures of the disk.
_NOT_HERE: Final = {errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ESPIPE, errno.EOPNOTSUPP}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A file that was read and sent, and waits for its fsync."""

    file: FileIO
    path: str
    checksum: str
    failure: OSError | None


class Forcing:
    """Forces the files that are added, at the latest at the end of the block."""

    def __init__(self, unforced: Unforced) -> None:
        self._unforced = unforced
        self._sent: list[_Sent] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            if error_type is None:
                self.force()
        finally:
            self._close()

    def read(
        self, path: str, digest: Callable[[FileIO, Callable[[int], None]], str]
    ) -> tuple[int, str]:
        """Add the file, and return its size and checksum. `digest` reads it, calls its second
        argument with the number of bytes so far, and returns its SHA-256.

        Raises OSError if the file cannot be read, otherwise as `force` does.
        """
        with ExitStack() as undo:
            file = undo.enter_context(open(path, "rb", buffering=0))
            sending = _Sending(file.fileno())
            try:
                checksum = digest(file, sending.has_read)
            except BaseException:
                if sending.failure is not None:
                    self._unforced.doubt(file.fileno())
                raise
            sending.send_rest()
            undo.pop_all()
        self._sent.append(
            _Sent(
                file=file,
                path=path,
                checksum=checksum,
                failure=sending.failure,
            )
        )
        self._bytes += sending.read_bytes
        if len(self._sent) >= _FILES_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self.force()
        return sending.read_bytes, checksum

    def force(self) -> None:
        """Force the files that were added to the disk. Raises StorageError, as `Unforced.force`
        does, naming the file."""
        for sent in self._sent:
            with os_errors("force to the disk", sent.path):
                self._unforced.force(
                    sent.file.fileno(),
                    sent.path,
                    sent.checksum,
                    failure=sent.failure,
                )
        self._close()

    def _close(self) -> None:
        for sent in self._sent:
            sent.file.close()
        self._sent.clear()
        self._bytes = 0


class _Sending:
    """Sends a file to the disk in pieces, without making it durable."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.read_bytes = self._sent = self._awaited = 0
        # Linux reports an error once, so the fsync may not report this one again.
        self.failure: OSError | None = None

    def has_read(self, read_bytes: int) -> None:
        """Send the last piece if this many bytes were read, and wait for the one before."""
        self.read_bytes = read_bytes
        if read_bytes - self._sent >= _PIECE_BYTES and self.failure is None:
            before, self._sent = self._sent, read_bytes
            send_range(self._descriptor, before, read_bytes - before)
            if before > self._awaited:
                self._wait_for(before)

    def send_rest(self) -> None:
        """Send what was not sent yet."""
        send_range(self._descriptor, self._sent, self.read_bytes - self._sent)

    def _wait_for(self, end: int) -> None:
        begin, self._awaited = self._awaited, end
        try:
            answered(
                lambda: wait_for_range(self._descriptor, begin, end - begin),
                lambda: f"writing {os.readlink(f'/proc/self/fd/{self._descriptor}')}",
                size_bytes=end - begin,
            )
        except OSError as error:
            self.failure = error


def send_range(descriptor: int, offset: int, size: int) -> None:
    """Start writing these bytes to the disk. An error appears when somebody waits for them."""
    if _sync_file_range is not None and size:
        _sync_file_range(descriptor, offset, size, _WRITE)


def wait_for_range(descriptor: int, offset: int, size: int) -> None:
    """Wait until these bytes, which were sent, are on their way no more. Raises OSError if the
    disk has refused bytes of the file; only an fsync makes them durable."""
    if _sync_file_range is not None and _sync_file_range(descriptor, offset, size, _WAIT_BEFORE):
        number = ctypes.get_errno()
        if number not in _NOT_HERE:
            raise OSError(number, os.strerror(number))


def _found_in_libc() -> Any:
    """`sync_file_range` of the C library; None where there is none."""
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


_sync_file_range = _found_in_libc()
