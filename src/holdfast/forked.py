"""A process that user code forks must not act for the one that forked it.

It has a copy of everything, down to the frames of our own code below the user's. So it ends where
it leaves user code (`children_end_here`), and gives up what its parent has open: locks, journals
and connections (`give_up_in_children`).
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
    """A child that is forked in this block ends where it leaves it: returning, with an exception
    or with sys.exit(). Children that end by themselves, as those of multiprocessing do, never
    come here."""
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
    """End this forked child. Exit functions are left to its parent, who registered them."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # user code may have put anything there
            stream.flush()
    os._exit(status)


def exit_status(stop: SystemExit) -> int:
    """What the process ends with, as the interpreter would have it."""
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    return int(stop.code is not None)


class Owned(Protocol):
    """What only the process that made it may use."""

    def give_up(self) -> None:
        """Called in a forked child: close descriptors, tell nobody, write and remove nothing."""


def give_up_in_children(owned: Owned) -> None:
    """Have a child that is forked from now on call `owned.give_up()`, as long as that lives."""
    _owned.add(owned)


_owned: WeakSet[Owned] = WeakSet()


def _give_up() -> None:
    for owned in list(_owned):
        # Another thread may have been closing it: what is closed twice keeps no other one open.
        with suppress(OSError):
            owned.give_up()
    _owned.clear()


os.register_at_fork(after_in_child=_give_up)
