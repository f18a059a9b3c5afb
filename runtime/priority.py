"""Processes that can wait for the training."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_AUTOGROUP: Final = Path("/proc/self/autogroup")
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
    with suppress(OSError):  # not this kernel, or no such right
        _lower_session(os.nice(0))


def _lower_session(nice: int) -> None:
    for left in reversed(range(_TRIES)):
        try:
            _AUTOGROUP.write_text(f"{nice}")
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(_PAUSE_S)
