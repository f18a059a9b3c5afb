"""Processes that can wait for the training."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

# Linux changes one session's priority in 100 ms, of all users', and refuses the next meanwhile.
_PAUSE_S: Final = 0.11
_TRIES: Final = 5
# `sched_setattr`, which older C libraries have not, by its number in the kernel's tables.
_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, slice in ns, deadline, period
_ATTRIBUTES: Final = struct.Struct("<IIQiIQQQ")
_LONGEST_SLICE_NS: Final = 100_000_000


def give_way(nice: int) -> None:
    """Lower the priority of this process, and of its session: a service is one of its own.

    Where Linux groups processes by their sessions (`man 7 sched`, "The autogroup feature"), the
    nice value of a process counts within its session alone: measured, a process of nice 10 had as
    much of a core as one of nice 0 in another session, and a sixth once its session had 10, too.
    """
    own = os.nice(nice)
    _lower_session(os.getpid(), own)
    _take_long_slices(own)


def _take_long_slices(nice: int) -> None:
    """Others that wake up get the core at once, as from Linux 6.12 on who asks for shorter slices
    does (Documentation/scheduler/sched-eevdf.rst). Without, a report of a rank whose core a
    tracker process had just got waited for the end of its slice: 3 ms for one report of a hundred.
    """
    number = _SETATTR.get(os.uname().machine)
    policy = getattr(os, "SCHED_BATCH", None)
    if number is None or policy is None:
        return  # not Linux, or a processor that nobody has looked the number up for
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, _LONGEST_SLICE_NS, 0, 0)
    # Where a sandbox forbids it things stay as they are.
    ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, wanted, 0)


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
