"""Locks on files that processes share as long as they live, so that others can wait for them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence

_held: list[int] = []


def hold(paths: Sequence[str]) -> None:
    """Share the locks on these files until this process and its forks have ended.

    The descriptors are opened anew: if user code closes one, other processes keep their locks.
    Locks inherited from a parent are released. If another process holds an exclusive lock, the run
    is over, and this process ends.
    """
    while _held:
        os.close(_held.pop())
    for path in paths:
        _hold(path)


def words(paths: Sequence[str]) -> str:
    """The files as one argument of a command; `from_words` reads it."""
    return json.dumps(list(paths))


def from_words(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _hold(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os._exit(1)
    _held.append(descriptor)
