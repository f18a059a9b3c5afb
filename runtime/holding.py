"""A file that a process holds as long as it lives, so that others can wait until all are gone."""

from __future__ import annotations

import fcntl
import os

_held: list[int] = []


def hold(path: str) -> None:
    """Share the lock on a file until this process and all that it forks are gone; "" is no file.

    The descriptor is this process's own: what user code does with it gives up no other process's
    share. What was held for a parent is let go. Where somebody has the file for itself, this
    process was started for nobody any more, and ends.
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
