"""Copying a file's bytes inside the kernel: sharing blocks where the file system can (btrfs, xfs),
else by `copy_file_range`, else through a buffer."""

from __future__ import annotations

import errno
import os
import sys

from holdfast.syncer.files.durable import write_all

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_CHUNK_BYTES = 1 << 30
_BUFFER_BYTES = 1 << 20
# What these say is "not here, use another way"; anything else (ENOSPC, EIO) is a failure.
_NOT_HERE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}


def copy_bytes(source: int, copy: int, size: int) -> int:
    """Copy from descriptor to descriptor in the cheapest way there is; returns the bytes copied.

    `size` is what is expected; what is there is copied. Raises OSError.
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
        if len(chunk) < buffer_bytes:  # a regular file gives less only at its end
            break
    return copied
