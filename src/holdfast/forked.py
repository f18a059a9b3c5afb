"""Prevents processes that user code forks from acting for holdfast.

Such a child has a copy of everything, including holdfast's frames that called the user code. So it
ends when it leaves user code (`children_end_here`), and closes its parent's locks, journals and
connections (`close_in_children`).
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol
from weakref import WeakSet

# How long a child may take for its last output.
_LAST_OUTPUT_S = 5.0


@contextmanager
def children_end_here() -> Iterator[None]:
    """End each child that is forked inside this block when it leaves the block: by returning, by
    an exception or by sys.exit(). Children that end by themselves, such as those of
    multiprocessing, never leave it."""
    pid = os.getpid()
    status, last = 1, ""
    try:
        yield
        status = 0
    except SystemExit as stop:
        status = exit_status(stop)
        raise
    except BaseException:
        if os.getpid() != pid:
            last = traceback.format_exc()
        raise
    finally:
        if os.getpid() != pid:
            end_child(status, last)


def end_child(status: int = 0, last: str = "") -> NoReturn:
    """End this forked child, without the exit functions that its parent registered. `last` goes to
    its stderr.

    Another thread may have held the lock of a stream during the fork, and does not exist here: the
    child does not wait for it forever.
    """
    told = threading.Event()
    output = threading.Thread(target=_finish_output, args=(last, told), daemon=True)
    with suppress(RuntimeError):  # there may be no room for a thread
        output.start()
        output.join(_LAST_OUTPUT_S)
    if not told.is_set():
        with suppress(OSError):
            os.write(2, last.encode(errors="replace"))
    os._exit(status)


def _finish_output(last: str, told: threading.Event) -> None:
    with suppress(Exception):  # user code may have replaced a stream
        sys.stderr.write(last)
        sys.stderr.flush()
        told.set()
    with suppress(Exception):
        sys.stdout.flush()


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
