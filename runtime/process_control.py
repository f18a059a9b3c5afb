"""What processes do to themselves and to others: signals, groups, titles, priority, shared locks,
the end of children with their parent, and the buffers of C code."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import fcntl
import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from holdfast.names import printable

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


_IOLBF = 1  # in glibc, musl and macOS
_STDOUT = {"linux": "stdout", "darwin": "__stdoutp"}


class _Stdio(NamedTuple):
    stdout: Any
    setvbuf: Callable[..., int]
    fflush: Callable[..., int]


def write_each_line() -> None:
    """Make C's stdout line-buffered; if it is a file, it is block-buffered by default."""
    if (stdio := _stdio()) is not None:
        stdio.setvbuf(stdio.stdout, None, _IOLBF, 0)


def flush() -> None:
    """Flush C's buffers. Otherwise each forked child would write their contents again."""
    if (stdio := _stdio()) is not None:
        stdio.fflush(None)


@cache
def _stdio() -> _Stdio | None:
    """C's stdout and the functions for it; None if they are not found."""
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, _STDOUT[sys.platform])
        libc.setvbuf.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t)
        libc.fflush.argtypes = (ctypes.c_void_p,)
        return _Stdio(stdout, libc.setvbuf, libc.fflush)
    except (KeyError, OSError, AttributeError, ValueError):
        return None


# What the kernel keeps of a process's name.
_NAME_BYTES = 15
# In /proc/self/stat after the name: the addresses where the arguments begin and end.
_BEGIN, _END = 45, 46
# The last byte of the arguments. If it is not NUL, the kernel shows the text before the first NUL.
_MARK = b"."

# From the kernel's include/uapi/linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

DEFAULT = int(signal.SIG_DFL)

# The signals to a worker: STOP to end, DUMP to write its stacks and end. SIGTERM is reserved for
# preemption from outside, and other signals for the user. Without a handler, both end the process
# without a core file. macOS has no real-time signals.
STOP = int(signal.SIGRTMIN) + 4 if sys.platform == "linux" else int(signal.SIGUSR1)
DUMP = int(signal.SIGRTMIN) + 5 if sys.platform == "linux" else int(signal.SIGUSR2)
Handler = Callable[[int, FrameType | None], Any] | int


def die_with_parent(parent_pid: int, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when the thread that started it ends (Linux).

    Elsewhere this process ends a little later, with the connection to the parent. If the parent
    has already ended, this process ends at once.
    """
    if sys.platform == "linux":
        _prctl()(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent_pid:
        os._exit(1)


def continue_without_parent() -> None:
    """Ask the kernel to continue this process, should it be stopped, when the thread that started
    it ends (Linux): it can then end, too."""
    if sys.platform == "linux":
        _prctl()(_PR_SET_PDEATHSIG, signal.SIGCONT)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (Linux). Children do not inherit
    this."""
    if sys.platform == "linux":
        _prctl()(_PR_SET_CHILD_SUBREAPER, 1)


def load() -> None:
    """Import what `die_with_parent` and `adopt_orphans` need, so that forked children have it."""
    if sys.platform == "linux":
        _prctl()


@cache
def _prctl() -> Callable[[int, int], int]:
    import ctypes

    found: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    return found


def set_handler(signum: int, handler: Handler) -> None:
    """`signal.signal` without its enums, which take 0.2 ms of a forked worker's start.

    `handler` may be `DEFAULT`.
    """
    _signal.signal(signum, handler)


# For each signal, the handler of this process and that of its children. The dict is replaced and
# never modified, because another thread may fork at any time.
_own_handlers: dict[int, tuple[Handler, Handler]] = {}
_blocked = threading.local()


@cache
def _watch_forks() -> None:
    os.register_at_fork(
        before=_block_before_fork,
        after_in_parent=_unblock_after_fork,
        after_in_child=_set_handlers_of_child,
    )


def set_own_handler(signum: int, handler: Handler, in_children: Handler = DEFAULT) -> None:
    """Set a handler for this process only; forked children get `in_children`.

    Signals to a new child are blocked until its handler is set: Python loses signals that its
    handlers receive between fork() and the hooks after it.
    """
    global _own_handlers
    _watch_forks()
    _own_handlers = {**_own_handlers, signum: (handler, in_children)}
    set_handler(signum, handler)


def end_own_handler(signum: int, handler: Handler) -> None:
    """Set `handler` for this process and its children."""
    global _own_handlers
    set_handler(signum, handler)
    _own_handlers = {number: own for number, own in _own_handlers.items() if number != signum}


def restore_own_handler(signum: int) -> None:
    """Restore the handler of `set_own_handler`, if a library has replaced it.

    Call it in the main thread, as Python requires for all handlers.
    """
    own = _own_handlers.get(signum)
    if own is not None and _signal.getsignal(signum) is not own[0]:
        set_handler(signum, own[0])


def _block_before_fork() -> None:
    _blocked.before = _signal.pthread_sigmask(signal.SIG_BLOCK, _own_handlers)


def _unblock_after_fork() -> None:
    _signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.before)


def _set_handlers_of_child() -> None:
    for signum, (handler, in_children) in _own_handlers.items():
        if _signal.getsignal(signum) is handler:  # otherwise user code has set its own
            set_handler(signum, in_children)
    _unblock_after_fork()


def set_blocked(blocked: bool, *signums: int) -> None:
    """Block or unblock the signals in this thread."""
    _signal.pthread_sigmask(signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK, signums)


def kill_group(pid: int, signum: int = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads; does nothing if it has ended."""
    if pid <= 1:
        raise ValueError(f"{pid} is not a worker's process group: 0 means this process's own")
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


class Title(NamedTuple):
    """What Linux shows of a process: `ps aux` "holdfast: kind of", `top` "holdfast:short".

    setproctitle would be another package for everybody, and has one text, of which `top` shows the
    first 15 bytes: "holdfast: trial" for all trials.
    """

    kind: str
    of: str = ""
    short: str = ""

    def show(self) -> None:
        """Name this process, which must be one of holdfast's. Does nothing where it cannot."""
        if sys.platform != "linux":
            return
        whole = printable(f"holdfast: {self.kind} {self.of}".rstrip())
        with suppress(OSError):
            name_process(self.short or self.kind)
            begin, end = _arguments()
            room = end - begin - len(_MARK)
            if room > 1:  # a sandbox may hide the addresses
                title = whole.encode(errors="replace")[: room - 1]
                _write("/proc/self/mem", title.ljust(room, b"\0") + _MARK, begin)


def name_process(short: str) -> None:
    """Set what `top` shows, and leave the command line. Raises OSError."""
    if sys.platform == "linux":
        _write("/proc/self/comm", f"holdfast:{short}".encode(errors="replace")[:_NAME_BYTES])


def _write(path: str, content: bytes, offset: int = 0) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if offset:
            os.lseek(fd, offset, os.SEEK_SET)
        os.write(fd, content)
    finally:
        os.close(fd)


@cache
def _arguments() -> tuple[int, int]:
    """The addresses where the arguments begin and end; forked children have the same."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    return int(fields[_BEGIN]), int(fields[_END])
