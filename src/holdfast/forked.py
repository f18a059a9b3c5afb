"""Prevents processes that user code forks from acting for holdfast.

Such a child has a copy of everything, including holdfast's frames that called the user code. So it
ends when it leaves user code (`children_end_here`), and closes its parent's locks, journals and
connections (`close_in_children`).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol
from weakref import WeakSet


@contextmanager
def children_end_here() -> Iterator[None]:
    """End each child that is forked inside this block when it leaves the block: by returning, by
    an exception or by sys.exit(). Children that end by themselves, such as those of
    multiprocessing, never leave it."""
    pid = os.getpid()
    status = 1
    try:
        yield
        status = 0
    except SystemExit as stop:
        status = exit_status(stop)
        raise
    except BaseException:
        if os.getpid() != pid:
            with suppress(Exception):
                traceback.print_exc()
        raise
    finally:
        if os.getpid() != pid:
            end_child(status)


def end_child(status: int = 0) -> NoReturn:
    """End this forked child, without the exit functions that its parent registered."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # user code may have replaced it
            stream.flush()
    os._exit(status)


def exit_status(stop: SystemExit) -> int:
    """The exit status that the interpreter would use."""
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    return int(stop.code is not None)


class Owned(Protocol):
    """An object that only the process that created it may use."""

    def close_in_child(self) -> None:
        """Called in a forked child: close descriptors; do not send, write or remove anything."""


def close_in_children(owned: Owned) -> None:
    """Call `owned.close_in_child()` in every child that is forked while `owned` exists."""
    _owned.add(owned)


_owned: WeakSet[Owned] = WeakSet()


def _close_all() -> None:
    for owned in list(_owned):
        # Another thread may have been closing it during the fork. An error here must not keep the
        # other objects open.
        with suppress(OSError):
            owned.close_in_child()
    _owned.clear()


os.register_at_fork(after_in_child=_close_all)
