"""Lowers the priority of processes that must not delay the training."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

# Linux allows one change of a session's priority per 100 ms, over all users.
_PAUSE_S: Final = 0.11
_TRIES: Final = 5
# The number of the system call `sched_setattr`, which older C libraries lack.
_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, slice in ns, deadline, period
_ATTRIBUTES: Final = struct.Struct("<IIQiIQQQ")
_LONGEST_SLICE_NS: Final = 100_000_000


def give_way(nice: int, *, with_session: bool = True) -> None:
    """Lower the priority of all threads of this process, and that of its session; each service has
    its own session. A command that a person starts shares that of the shell, which must keep its
    priority, as must what the shell starts next.

    If Linux groups processes by session (`man 7 sched`, "The autogroup feature"), the nice value
    of a process counts only within its session. As measured, a process with nice 10 got as much of
    a core as one with nice 0 in another session, and a sixth when its session had nice 10, too.
    """
    own = os.nice(nice)  # on Linux that of this thread, and of those that it starts
    if with_session:
        _set_session(os.getpid(), own)
    for thread in _threads():
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, thread, own)
        _take_long_slices(own, thread)


def hurry(pid: int) -> None:
    """Give a process that gave way the priority of this one: from now on, somebody waits for it.

    Linux lets anyone raise the priority of their sessions, but only a privileged process that of
    processes. May block for half a second.
    """
    own = os.nice(0)
    _set_session(pid, own)
    with suppress(OSError):  # it is not allowed, or the process has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), own)


def _threads() -> list[int]:
    """The numbers of this process's threads; 0, which means the caller, where they are unknown."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return [0]


def _take_long_slices(nice: int, thread: int) -> None:
    """Ask for long time slices, so that processes with shorter slices preempt this one when they
    wake up, from Linux 6.12 on (Documentation/scheduler/sched-eevdf.rst). Otherwise one report in
    a hundred waited 3 ms, for the end of the slice of a tracker process on the same core.
    """
    number = _SETATTR.get(os.uname().machine)
    policy = getattr(os, "SCHED_BATCH", None)
    if number is None or policy is None:
        return  # not Linux, or a processor whose number is not in the table
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, _LONGEST_SLICE_NS, 0, 0)
    # An error, as in a sandbox that forbids the call, is ignored.
    ctypes.CDLL(None).syscall(ctypes.c_long(number), thread, wanted, 0)


def children_give_way() -> None:
    """Lower the sessions of this process's descendants that lead one; they inherit its nice
    value."""
    import psutil

    nice = os.nice(0)
    for child in psutil.Process().children(recursive=True):
        with suppress(OSError):  # it has ended
            if os.getsid(child.pid) == child.pid:
                _set_session(child.pid, nice)


def _set_session(pid: int, nice: int) -> None:
    for left in reversed(range(_TRIES)):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(f"{nice}")
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        except OSError:  # the kernel does not support it, or denies it
            return
        else:
            return
