"""Copies a file's bytes inside the kernel: by sharing blocks if the file system can (btrfs, xfs),
otherwise with `copy_file_range`, otherwise through a buffer."""

from __future__ import annotations

import errno
import os
import sys

from holdfast.syncer.files.durable import write_all

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_CHUNK_BYTES = 1 << 30
_BUFFER_BYTES = 1 << 20
# These errors mean that the call is not supported here; others (ENOSPC, EIO) are failures.
_NOT_HERE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}


def copy_bytes(source: int, copy: int, size: int) -> int:
    """Copy from descriptor to descriptor in the cheapest way; return the number of bytes copied.

    `size` is the expected size; the whole file is copied, whatever its size. Raises OSError.
    """
    if size >= _BUFFER_BYTES and _share_blocks(source, copy):
        return os.fstat(copy).st_size
    if size < _BUFFER_BYTES or not hasattr(os, "copy_file_range"):
        return _copy_through_buffer(source, copy, min(size + 1, _BUFFER_BYTES))
    copied = 0
    try:
        while count := os.copy_file_range(source, copy, _CHUNK_BYTES):
            copied += count
    except OSError as error:
        if copied or error.errno not in _NOT_HERE:
            raise
        return _copy_through_buffer(source, copy)
    # Some pseudo file systems answer 0 at once for a file that has bytes (copy_file_range(2)).
    return copied or _copy_through_buffer(source, copy)


def _share_blocks(source: int, copy: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(copy, _FICLONE, source)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        return False
    return True


def _copy_through_buffer(source: int, copy: int, buffer_bytes: int = _BUFFER_BYTES) -> int:
    copied = 0
    while chunk := os.read(source, buffer_bytes):
        write_all(copy, chunk)
        copied += len(chunk)
        if len(chunk) < buffer_bytes:  # a short read of a regular file means its end
            break
    return copied
