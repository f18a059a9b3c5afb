"""A lock on a file that processes share as long as they live, so that others can wait for them."""

from __future__ import annotations

import fcntl
import os

_held: list[int] = []


def hold(path: str) -> None:
    """Share the lock on a file until this process and its forks have ended; "" means no file.

    The descriptor is opened anew: if user code closes it, other processes keep their locks. A lock
    inherited from a parent is released. If another process holds the exclusive lock, the run is
    over, and this process ends.
    """
    while _held:
        os.close(_held.pop())
    if not path:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os._exit(1)
    _held.append(descriptor)
