"""Forces many files to the disk, and lets other work on that disk proceed meanwhile.

An fsync of each of 1,000 small files makes the file system commit its journal 1,000 times. So the
bytes of some files are first sent to the disk, and then each gets its fsync: one commit has them
all. A large file is sent in pieces while it is read, and only two of them are on their way at a
time: the requests of others then wait for these, and not for a whole checkpoint.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from io import FileIO
from typing import Any, Final, Self

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import os_errors
from holdfast.syncer.files.disk_deadline import answered
from holdfast.syncer.files.unforced import Unforced

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
