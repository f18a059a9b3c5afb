"""The warm parent: a process with one thread that imports the user's modules and forks workers.

It talks to the controller over one socket:

    controller: ["load", entry, payload, learns]  ["signal", worker, n]  ["ping", n]  ["end"]
                ["fork", worker, bytes of memory that it may use] and a file descriptor
                ["succeed", successor] and a file descriptor  ["preload", modules, folder]
    here:       ["ready", spawns, why]  ["refused", type, message, traceback]
                ["forked", worker, pid]  ["failed", worker, why]  ["exited", worker, status, spent]
                ["pong", n]
                ["importing", module]  ["left", module, why]  ["unfit", module, why]

`entry` is `module:attribute`, an object with `prepare(payload)`, which is called once here, and
`run(channel)`, which is called in each worker. If forking is not safe, each worker is a fresh
interpreter, which is slower, and "ready" says why. "exited" is sent when the worker and everything
that it started are gone (`holdfast.runtime.orphans`). When the connection or the controller ends,
this process kills every worker's process group, waits for the remaining orphans, and ends.

After a worker's SIGKILL: `Children` reaps it, this process sends "exited", the launcher and the
trial's actor turn that into an event, and `on_exit` in `scheduler/failing.py` decides about the
trial. docs/design.md lists the steps.

A successor is a fork of this process that serves in the same way, over its own socket. It imports
in the background the modules that the first workers imported, and then forks the next workers
(`holdfast.runtime.warm.succession`). This process treats it like a worker. If `learns` is true,
workers record their imports (`holdfast.runtime.learning`).
"""

from __future__ import annotations

import array
import atexit
import errno
import functools
import gc
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast import started_by_import
from holdfast.forked import children_end_here
from holdfast.runtime import interpreter, learning, process_control
from holdfast.runtime.errors import RuntimeFault
from holdfast.runtime.orphans import ORPHAN_DEADLINE_S, Departures, Ended, Orphans
from holdfast.runtime.process_control import from_words, hold
from holdfast.runtime.transport import CHUNK_BYTES, remove_left
from holdfast.runtime.usage.used import Spent, resident_bytes
from holdfast.runtime.warm import preloading
from holdfast.runtime.warm.preloading import HugePages
from holdfast.runtime.wire import Decoder, Message, encode
from holdfast.runtime.worker import (
    FAULT,
    ExitFunction,
    FreshInterpreters,
    OpenFiles,
    WorkerEntry,
    be_worker,
    find_entry,
    flush_open_files,
)
from holdfast.schema import to_row
from holdfast.text.errors import message_of, traceback_of
from holdfast.usable_process import make_usable

if TYPE_CHECKING:
    from holdfast.runtime.warm.memory_groups import MemoryGroup, MemoryGroups


# The unit of `ru_maxrss`.
_RSS_BYTES = 1 if sys.platform == "darwin" else 1024


class Children:
    """The children of this process; `waker` is readable when one of them has ended."""

    def __init__(self, tell_exit: Callable[[Ended], None]) -> None:
        """`tell_exit` is called with a worker that has ended, when everything that it started is
        gone."""
        self.waker, self._wakes = socket.socketpair()
        for end in (self.waker, self._wakes):
            end.setblocking(False)
        self._workers: dict[int, str] = {}
        # Since when each process runs, and the memory that it shares with this one.
        self._begun: dict[int, tuple[float, int]] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._tell_exit = tell_exit
        self._orphans = Orphans(self._workers)
        self._departures = Departures(self._orphans, self._collect, self._tell)

    def watch(self) -> None:
        """Make the end of a child wake `waker`."""
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        process_control.set_blocked(False, signal.SIGCHLD)

    def add(
        self, pid: int, worker: str, shared_bytes: int = 0, group: MemoryGroup | None = None
    ) -> None:
        """`shared_bytes` of its memory are shared with this process; `group` limits it."""
        self._workers[pid] = worker
        self._begun[pid] = time.monotonic(), shared_bytes
        if group is not None:
            self._groups[worker] = group

    def spare_present(self) -> None:
        """Do not end the processes that exist now: the user's modules have started them."""
        self._orphans.spare_present()

    def signal(self, worker: str, signum: int) -> None:
        """Send a signal to a worker. SIGKILL goes to its whole process group."""
        for pid, name in self._workers.items():
            if name == worker:
                if signum == signal.SIGKILL:
                    process_control.kill_group(pid)
                else:
                    os.kill(pid, signum)

    @property
    def ms_until_due(self) -> float | None:
        """Milliseconds until `reap` must be called although no child has ended; None for
        never."""
        return _ms_until(self._departures.due_s)

    def reap(self) -> None:
        """Reap the children that have ended, end orphans, and report exits."""
        with suppress(BlockingIOError):  # it is due, but no child has ended
            self.waker.recv(4096)
        self._departures.reap(time.monotonic())

    def end(self) -> None:
        """Kill all workers, and wait for them and for orphans, for `ORPHAN_DEADLINE_S` at most."""
        for pid in list(self._workers):
            process_control.kill_group(pid)
        self._outlive()
        for group in self._groups.values():
            group.remove()

    def end_all(self) -> None:
        """After `end`: also end the processes that the user's modules have moved out of this
        process group at their import."""
        self._orphans.stop_sparing()
        self._outlive()

    def close(self) -> None:
        """In a forked child: close what belongs to the parent."""
        self.waker.close()
        self._wakes.close()

    def _outlive(self) -> None:
        poll = select.poll()
        poll.register(self.waker, select.POLLIN)
        now = time.monotonic()
        deadline = now + ORPHAN_DEADLINE_S
        while now < deadline:
            self._collect()
            if not self._orphans.end(now) and not self._workers:
                return
            poll.poll(_ms_until(min(deadline, self._orphans.due_s)))
            with suppress(BlockingIOError):  # it is due, but no child has ended
                self.waker.recv(4096)
            now = time.monotonic()

    def _collect(self) -> list[Ended]:
        """Reap all children that have ended."""
        ended: list[Ended] = []
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                worker = self._workers.pop(pid, "")
                spent: list[Any] = []
                if worker:
                    began, shared = self._begun.pop(pid)
                    spent = to_row(
                        Spent(
                            wall_s=time.monotonic() - began,
                            cpu_s=usage.ru_utime + usage.ru_stime,
                            largest_bytes=usage.ru_maxrss * _RSS_BYTES,
                            shared_bytes=shared,
                        )
                    )
                    # The processes that the worker started must not outlive it.
                    process_control.kill_group(pid)
                else:
                    self._orphans.forget(pid)
                ended.append(Ended(worker, status, spent))
        return ended

    def _tell(self, ended: Ended) -> None:
        group = self._groups.pop(ended.worker, None)
        if group is not None:
            *counted, _ = ended.spent
            ended = ended._replace(spent=[*counted, group.has_exceeded()])
            group.remove()
        self._tell_exit(ended)


def _ms_until(due_s: float) -> float | None:
    """The timeout for `poll`; None means forever."""
    return None if due_s == math.inf else 1000 * max(0.0, due_s - time.monotonic())


def _ignore(*_: Any) -> None:
    """The kernel writes to the wake-up socket only if SIGCHLD has a handler."""


# In place of a descriptor that could not be received, because too many are open here.
_NO_FD = -1


class WarmParent:
    """The warm parent, or a successor of it: performs the controller's orders one by one."""

    def __init__(
        self,
        sock: socket.socket,
        controller: int,
        inherited: Sequence[int],
        held: Sequence[str] = (),
    ) -> None:
        """`controller` is the pid of the process that started this one. Every worker inherits the
        descriptors `inherited` and holds the files `held` (`holdfast.runtime.process_control`)."""
        sock.setblocking(True)  # whatever socket.setdefaulttimeout() says
        self._socket = sock
        self._controller = controller
        self._inherited = inherited
        self._held = held
        self._decoder = Decoder()
        self._fds: list[int] = []
        self.children = Children(self._tell_exit)
        self._open_files: OpenFiles = ()
        self._exit_functions: list[ExitFunction] = []
        self._entry: WorkerEntry | None = None
        self._fresh: FreshInterpreters | None = None  # if forking is not safe
        self._shared_bytes = 0  # the memory that forked workers share with this process
        self._groups: MemoryGroups | None = None
        self._huge_pages = HugePages()
        self._ended = self._is_orphaned = False

    def serve(self) -> bool:
        """Perform orders until "end", or until the controller is gone; then end every worker.

        Returns whether there was an order to end.
        """
        self.children.watch()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self.children.waker, select.POLLIN)
        try:
            while not (self._ended or self._is_orphaned):
                self._turn(poll)
        except ConnectionError:
            return False
        finally:
            self.children.end()
        return self._ended

    def _turn(self, poll: select.poll) -> None:
        ready = poll.poll(self.children.ms_until_due)
        for fd, _ in ready:
            if fd == self.children.waker.fileno():
                self.children.reap()
            else:
                self._listen()
        if not ready:
            self.children.reap()

    def _undo(self) -> None:
        """Undo what imported modules may have done: handlers, blocked signals, closed files."""
        make_usable()
        self.children.watch()
        signal.signal(signal.SIGTERM, self._on_sigterm)
        process_control.set_blocked(False, signal.SIGTERM)

    def _on_sigterm(self, *_: Any) -> None:
        """SIGTERM: the kernel sends it when the controller has died.

        It may also go to all processes of a job. Then the controller decides about the workers,
        so that trials can save.
        """
        self._is_orphaned = os.getppid() != self._controller

    def _listen(self) -> None:
        """Raises ConnectionError when the connection has ended."""
        space = socket.CMSG_SPACE(array.array("i").itemsize)
        data, ancillary, flags, _ = self._socket.recvmsg(CHUNK_BYTES, space)
        if not data:
            raise ConnectionResetError("the controller is gone")
        # The kernel ends a read after bytes that came with a descriptor, and each message has one.
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds += array.array("i", raw)
        if flags & socket.MSG_CTRUNC:
            self._fds.append(_NO_FD)
        for message in self._decoder.feed(data):
            self._obey(message)

    def _obey(self, message: Message) -> None:
        match message:
            case ["load", str(entry), bytes(payload), bool(learns)]:
                self._load(entry, payload, learns)
            case ["preload", list(names), str(directory)]:
                self._preload(names, directory)
            case ["fork", str(worker), int(most_bytes)]:
                self._fork_worker(worker, self._fds.pop(0), most_bytes)
            case ["succeed", str(successor)]:
                self._start_child(successor, self._fds.pop(0), self._start_successor)
            case ["signal", str(worker), int(signum)]:
                self.children.signal(worker, signum)
            case ["ping", int(token)]:
                self._tell(["pong", token])
            case ["end"]:
                self._ended = True
            case _:
                raise ValueError(f"not an order: {message!r:.200}")

    def _tell(self, message: Message) -> None:
        self._socket.sendall(encode(message))

    def _load(self, name: str, payload: bytes, learns: bool) -> None:
        try:
            entry = find_entry(name)
            with children_end_here():
                entry.prepare(payload)
            if learns:  # before the freeze: each worker would copy the pages of what this makes
                learning.watch_children()
            unsafe = self._prepare_to_fork(name, payload)
        except BaseException as error:
            # The controller ends the experiment with this error.
            text = traceback_of(error, error.__traceback__)
            self._tell(["refused", type(error).__name__, message_of(error), text])
            return
        self._entry = entry
        self._tell(["ready", self._fresh is not None, ", ".join(unsafe)])

    def _prepare_to_fork(self, name: str, payload: bytes) -> list[str]:
        """Make this process ready for forks. Returns the names of threads that make them
        unsafe."""
        process_control.load()
        self._freeze()
        self._undo()
        unsafe = interpreter.unsafe_to_fork()
        if unsafe or not interpreter.fork_works():
            self._fresh = FreshInterpreters(name, payload, self._inherited, self._held)
        # From now on the kernel sends SIGTERM when the controller dies: this process must end its
        # workers, and SIGKILL would leave no time for that.
        process_control.die_with_parent(self._controller, signal.SIGTERM)
        return unsafe

    def _freeze(self) -> None:
        """Keep the current objects and processes for all workers."""
        self.children.spare_present()
        gc.collect()
        self._open_files = flush_open_files()
        gc.freeze()
        self._shared_bytes = resident_bytes()

    def _preload(self, names: Sequence[str], directory: str) -> None:
        """Import modules. Answers "ready", or "unfit" if this process cannot fork workers now."""
        try:
            self._exit_functions += preloading.preload(
                names,
                directory,
                begins=lambda name: self._tell(["importing", name]),
                fails=lambda name, why: self._tell(["left", name, why]),
            )
        except preloading.UnsafeToFork as unfit:
            self._tell(["unfit", unfit.module, str(unfit)])
            return
        self._undo()
        learning.watch_children()
        self._freeze()
        self._tell(["ready", False, ""])

    def _fork_worker(self, name: str, fd: int, most_bytes: int) -> None:
        """Start a worker that may use so much memory; 0 means that nothing limits it."""
        try:
            group = self._make_group(most_bytes) if most_bytes else None
        except (OSError, RuntimeFault) as error:
            self._tell(["failed", name, f"its memory cannot be limited: {error}"])
            if fd != _NO_FD:
                os.close(fd)
            return
        self._start_child(name, fd, functools.partial(self._start_worker, group), group)

    def _make_group(self, most_bytes: int) -> MemoryGroup:
        """Raises OSError, CannotEnforce."""
        # Imported here, because few runs enforce the limits.
        from holdfast.runtime.warm.memory_groups import MemoryGroups

        self._groups = self._groups or MemoryGroups()
        return self._groups.make(most_bytes)

    def _start_child(
        self, name: str, fd: int, start: Callable[[int], int], group: MemoryGroup | None = None
    ) -> None:
        """Start a worker or a successor with `start`, and tell the controller its pid."""
        began_s = time.thread_time()
        try:
            pid = start(fd)
        except OSError as error:
            if group is not None:
                group.remove()
            self._tell(["failed", name, str(error)])
            return
        finally:
            if fd != _NO_FD:
                os.close(fd)
        shared = self._shared_bytes if self._fresh is None else 0
        self.children.add(pid, name, shared, group)
        # With the pid, the controller can find a worker that is stopped before its first message.
        self._tell(["forked", name, pid])
        if self._fresh is None:
            self._huge_pages.after_fork(time.thread_time() - began_s)

    def _start_worker(self, group: MemoryGroup | None, fd: int) -> int:
        """Start a worker. Raises OSError if there is no room for a process, or nothing was
        loaded."""
        if fd == _NO_FD:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if self._entry is None:
            raise OSError("the data that workers share could not be loaded")
        if self._fresh is not None:
            pid = self._fresh.start(fd)
            if group is not None:
                group.enter(pid)
            return pid
        return self._fork(functools.partial(self._become_worker, fd, self._entry, group))

    def _start_successor(self, fd: int) -> int:
        """Fork a successor. Raises OSError like `_start_worker`, and if workers are not forked."""
        if fd == _NO_FD or self._entry is None or self._fresh is not None:
            raise OSError("workers are not forked here")
        return self._fork(functools.partial(self._become_successor, fd, self._entry, os.getpid()))

    def _fork(self, become: Callable[[], None]) -> int:
        """Fork a child that calls `become`, and ends with it."""
        parent = os.getpid()
        # Until the child has its own handlers, SIGTERM would run this process's handler there.
        process_control.set_blocked(True, signal.SIGTERM)
        try:
            pid = os.fork()
            if pid == 0:
                self._begin_child(parent, become)
        finally:
            process_control.set_blocked(False, signal.SIGTERM)
        # Both processes set the group: either may be the first to use it.
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        return pid

    def _begin_child(self, parent: int, become: Callable[[], None]) -> NoReturn:
        status = FAULT
        try:
            os.setpgid(0, 0)
            process_control.die_with_parent(parent)
            hold(self._held)
            process_control.adopt_orphans()
            signal.set_wakeup_fd(-1)
            self._socket.close()
            self.children.close()
            become()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _become_worker(self, fd: int, entry: WorkerEntry, group: MemoryGroup | None) -> NoReturn:
        if group is not None:
            group.enter()
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            process_control.set_handler(signum, process_control.DEFAULT)
        process_control.set_blocked(
            False, signal.SIGCHLD, signal.SIGTERM, process_control.STOP, process_control.DUMP
        )
        be_worker(entry, fd, self._open_files, self._exit_functions)

    def _become_successor(self, fd: int, entry: WorkerEntry, parent: int) -> None:
        """The kernel kills the successor with this process, and its workers with it. This process
        adopts the orphans that they leave."""
        successor = WarmParent(socket.socket(fileno=fd), parent, self._inherited, self._held)
        signal.signal(signal.SIGTERM, successor._on_sigterm)
        process_control.set_blocked(False, signal.SIGTERM)
        successor._entry = entry
        successor.serve()

    def _tell_exit(self, ended: Ended) -> None:
        self._tell(["exited", *ended])


def main() -> None:
    """Main function of the warm parent. `argv` has the files that it and its workers hold, those
    that a dead controller leaves, the socket's descriptor, the parent's pid, and the inherited
    descriptors."""
    held, left = map(from_words, sys.argv[1:3])
    fd, parent, *inherited = map(int, sys.argv[3:])
    process_control.die_with_parent(parent)
    started_by_import.refuse_from_now_on()
    hold(held)
    process_control.adopt_orphans()
    interpreter.limit_imports(os.environ)
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    warm = WarmParent(sock, parent, inherited, held)
    # Registered first, so it runs last: modules may end the processes that they started.
    atexit.register(warm.children.end_all)
    if not warm.serve():
        warm.children.end_all()
        remove_left(left, parent)
        # End the processes that the user's modules started at their import, and this one.
        process_control.kill_group(os.getpid())
