"""A process that user code forks must not act in the name of the one that forked it.

It has a copy of everything, down to the frames of our own code below the user's. So it ends where
it leaves user code, and what connects its parent with the controller is closed in it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


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
