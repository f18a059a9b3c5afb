"""Processes that can wait for the training."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

# Linux changes one session's priority in 100 ms, of all users', and refuses the next meanwhile.
_PAUSE_S: Final = 0.11
_TRIES: Final = 5


def give_way(nice: int) -> None:
    """Lower the priority of this process, and of its session: a service is one of its own.

    Where Linux groups processes by their sessions (`man 7 sched`, "The autogroup feature"), the
    nice value of a process counts within its session alone: measured, a process of nice 10 had as
    much of a core as one of nice 0 in another session, and a sixth once its session had 10, too.
    """
    os.nice(nice)
    _lower_session(os.getpid(), os.nice(0))


def children_give_way() -> None:
    """The same for processes that this one has started, which have its nice value, and that are
    sessions of their own."""
    import psutil

    nice = os.nice(0)
    for child in psutil.Process().children(recursive=True):
        with suppress(OSError):  # it is gone
            if os.getsid(child.pid) == child.pid:
                _lower_session(child.pid, nice)


def _lower_session(pid: int, nice: int) -> None:
    for left in reversed(range(_TRIES)):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(f"{nice}")
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        except OSError:  # not this kernel, or no such right
            return
        else:
            return
