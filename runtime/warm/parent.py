"""The warm parent: a process with one thread that has imported the user's modules and forks.

It speaks with the controller over one socket:

    controller: ["load", entry, payload, learns]  ["signal", worker, n]  ["ping", n]  ["end"]
                ["fork", worker] and with it a file descriptor
                ["succeed", successor] and with it a file descriptor  ["preload", modules, folder]
    here:       ["ready", spawns, why]  ["refused", type, message, traceback]
                ["forked", worker, pid]  ["failed", worker, why]  ["exited", worker, status]
                ["pong", n]
                ["importing", module]  ["left", module, why]  ["unfit", module, why]

`entry` is `module:attribute`, an object with `prepare(payload)`, called once here, and
`run(channel)`, called in each worker. An exit is reported when everything that the worker started
is gone (`holdfast.runtime.orphans`). When the connection or the controller ends, this process
kills every worker's process group, waits for the rest of what they started, and ends. If a fork
would not be safe, workers are fresh interpreters, which is slower, and "ready" says why.

A successor is a fork of this process that serves as it does, over a socket of its own. It imports
in the background what the first workers have imported, and then forks the next ones
(`holdfast.runtime.warm.succession`). To this process it is a worker like the others. If `learns`
is true, workers note what they import (`holdfast.runtime.learning`).
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
from typing import Any, NoReturn

from holdfast.forked import children_end_here
from holdfast.runtime import learning, process_control, threads
from holdfast.runtime.holding import hold
from holdfast.runtime.orphans import PATIENCE_S, Departures, Ended, Orphans
from holdfast.runtime.safe_text import message_of, traceback_of
from holdfast.runtime.transport import CHUNK_BYTES
from holdfast.runtime.warm import preloading
from holdfast.runtime.warm.fresh import FreshInterpreters
from holdfast.runtime.wire import Decoder, Message, encode
from holdfast.runtime.worker import (
    FAULT,
    ExitFunction,
    Inheritance,
    WorkerEntry,
    be_worker,
    bequeath,
    find_entry,
)

# Stands for a descriptor that was sent and could not be received: too many are open here.
_NO_FD = -1


class WarmParent:
    def __init__(
        self, sock: socket.socket, controller: int, inherited: Sequence[int], held: str = ""
    ) -> None:
        """`controller` is the process that started this one; `inherited` go to every worker, and
        each holds the file `held` (see `holdfast.runtime.holding`)."""
        self._socket = sock
        self._controller = controller
        self._inherited = inherited
        self._held = held
        self._waker, self._wakes = socket.socketpair()
        self._decoder = Decoder()
        self._fds: list[int] = []
        self._workers: dict[int, str] = {}
        self._orphans = Orphans(self._workers)
        self._departures = Departures(self._orphans, self._collect, self._tell_exit)
        self._inheritance: Inheritance = ()
        self._exit_functions: list[ExitFunction] = []
        self._entry: WorkerEntry | None = None
        self._fresh: FreshInterpreters | None = None  # where a fork is not safe
        self._ended = self._forsaken = False

    def serve(self) -> bool:
        """Obey until the order to end, or until the controller is gone; then end every worker.

        Returns whether there was such an order.
        """
        for end in (self._waker, self._wakes):
            end.setblocking(False)
        self._await_children()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._waker, select.POLLIN)
        try:
            while not (self._ended or self._forsaken):
                self._turn(poll)
        except ConnectionError:
            return False
        finally:
            for pid in list(self._workers):
                process_control.kill_group(pid)
            self._outlive()
        return self._ended

    def _await_children(self) -> None:
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)

    def outlive_all(self) -> None:
        """Also end what the user's modules moved out of this group at their import."""
        self._orphans.spare_nobody()
        self._outlive()

    def _outlive(self) -> None:
        """Wait until workers and orphans are gone, for `PATIENCE_S` at most."""
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        now = time.monotonic()
        deadline = now + PATIENCE_S
        while now < deadline:
            self._collect()
            if not self._orphans.end(now) and not self._workers:
                return
            poll.poll(_ms_until(min(deadline, self._orphans.due_s)))
            with suppress(BlockingIOError):  # it is time, but no child has ended
                self._waker.recv(4096)
            now = time.monotonic()

    def _turn(self, poll: select.poll) -> None:
        ready = poll.poll(_ms_until(self._departures.due_s))
        for fd, _ in ready:
            if fd == self._waker.fileno():
                self._waker.recv(4096)
                self._departures.settle(time.monotonic())
            else:
                self._listen()
        if not ready:
            self._departures.settle(time.monotonic())

    def _forsake(self, *_: Any) -> None:
        """SIGTERM: the kernel sends it when the controller has died.

        It may also go to all processes of a job. Then the controller decides about the workers,
        which may want to save what they have.
        """
        self._forsaken = os.getppid() != self._controller

    def _listen(self) -> None:
        """Raises ConnectionError when the connection has ended."""
        space = socket.CMSG_SPACE(array.array("i").itemsize)
        data, ancillary, flags, _ = self._socket.recvmsg(CHUNK_BYTES, space)
        if not data:
            raise ConnectionResetError("the controller is gone")
        # The kernel ends a read behind bytes that came with descriptors, and one comes at a time.
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
            case ["fork", str(worker)]:
                self._start(worker, self._fds.pop(0), self._bear)
            case ["succeed", str(successor)]:
                self._start(successor, self._fds.pop(0), self._bear_successor)
            case ["signal", str(worker), int(signum)]:
                for pid, name in self._workers.items():
                    if name == worker:
                        self._signal(pid, signum)
            case ["ping", int(token)]:
                self._tell(["pong", token])
            case ["end"]:
                self._ended = True
            case _:
                raise ValueError(f"not an order: {message!r:.200}")

    def _signal(self, pid: int, signum: int) -> None:
        # An order to end goes to the worker, which cleans up; SIGKILL goes to its whole group.
        if signum == signal.SIGKILL:
            process_control.kill_group(pid)
        else:
            os.kill(pid, signum)

    def _tell(self, message: Message) -> None:
        self._socket.sendall(encode(message))

    def _load(self, name: str, payload: bytes, learns: bool) -> None:
        try:
            entry = find_entry(name)
            with children_end_here():
                entry.prepare(payload)
            unsafe = self._settle(name, payload)
            if learns and self._fresh is None:
                learning.watch_children()
        except BaseException as error:
            # The controller ends the experiment with it.
            text = traceback_of(error, error.__traceback__)
            self._tell(["refused", type(error).__name__, message_of(error), text])
            return
        self._entry = entry
        self._tell(["ready", self._fresh is not None, ", ".join(unsafe)])

    def _settle(self, name: str, payload: bytes) -> list[str]:
        """Get ready for workers; the names of the threads that forbid forking them."""
        process_control.load()
        self._freeze()
        unsafe = threads.unsafe_to_fork()
        if unsafe or not threads.fork_works():
            self._fresh = FreshInterpreters(name, payload, self._inherited, self._held)
        # From here on this process has workers to end, for which SIGKILL would leave no time.
        signal.signal(signal.SIGTERM, self._forsake)
        process_control.die_with_parent(self._controller, signal.SIGTERM)
        return unsafe

    def _freeze(self) -> None:
        """Keep what is here now for all workers."""
        self._orphans.spare_present()
        gc.collect()
        self._inheritance = bequeath()
        gc.freeze()

    def _preload(self, names: Sequence[str], directory: str) -> None:
        """Answers "ready", or "unfit": then this process is of no use."""
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
        self._await_children()  # as the modules may have signal handlers of their own
        signal.signal(signal.SIGTERM, self._forsake)
        self._freeze()
        learning.watch_children()
        self._tell(["ready", False, ""])

    def _start(self, worker: str, fd: int, bear: Callable[[int], int]) -> None:
        try:
            pid = bear(fd)
        except OSError as error:
            self._tell(["failed", worker, str(error)])
            return
        finally:
            if fd != _NO_FD:
                os.close(fd)
        self._workers[pid] = worker
        # So one that is stopped before its first message can be found, too.
        self._tell(["forked", worker, pid])

    def _bear(self, fd: int) -> int:
        """Raises OSError if there is no room for a process, or nothing to run in it."""
        if fd == _NO_FD:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if self._entry is None:
            raise OSError("what the workers share could not be loaded")
        if self._fresh is not None:
            return self._fresh.start(fd)
        return self._fork(functools.partial(self._become_worker, fd, self._entry))

    def _bear_successor(self, fd: int) -> int:
        """Raises OSError as `_bear` does, and if nothing is forked here."""
        if fd == _NO_FD or self._entry is None or self._fresh is not None:
            raise OSError("nothing is forked here")
        return self._fork(functools.partial(self._become_successor, fd, self._entry))

    def _fork(self, become: Callable[[int], NoReturn]) -> int:
        """`become` is what the child does. It gets the parent's pid."""
        parent = os.getpid()
        # Between the fork and the worker's own handlers it would only set a flag here.
        process_control.set_blocked(signal.SIGTERM, True)
        try:
            pid = os.fork()
            if pid == 0:
                become(parent)
        finally:
            process_control.set_blocked(signal.SIGTERM, False)
        # Both sides set the group, so that neither can be too late to signal it.
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        return pid

    def _become_worker(self, fd: int, entry: WorkerEntry, parent: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            process_control.die_with_parent(parent)
            hold(self._held)
            process_control.adopt_orphans()
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM):
                process_control.set_handler(signum, process_control.DEFAULT)
            process_control.set_blocked(signal.SIGTERM, False)
            self._close()
            be_worker(entry, fd, self._inheritance, self._exit_functions)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(FAULT)

    def _become_successor(self, fd: int, entry: WorkerEntry, parent: int) -> NoReturn:
        """It dies with this process, and its workers with it; this one adopts what they leave."""
        status = FAULT
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            self._close()
            successor = WarmParent(socket.socket(fileno=fd), parent, self._inherited, self._held)
            signal.signal(signal.SIGTERM, successor._forsake)
            process_control.set_blocked(signal.SIGTERM, False)
            process_control.die_with_parent(parent)
            hold(self._held)
            process_control.adopt_orphans()
            successor._entry = entry
            successor.serve()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _close(self) -> None:
        for private in (self._socket, self._waker, self._wakes):
            private.close()

    def _collect(self) -> list[Ended]:
        """Reap all that have ended."""
        ended: list[Ended] = []
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                worker = self._workers.pop(pid, "")
                if worker:
                    # What the worker started must not outlive it.
                    process_control.kill_group(pid)
                else:
                    self._orphans.forget(pid)
                ended.append((worker, status))
        return ended

    def _tell_exit(self, worker: str, status: int) -> None:
        self._tell(["exited", worker, status])


def _ms_until(due_s: float) -> float | None:
    """For `poll`, to which None means forever."""
    return None if due_s == math.inf else 1000 * max(0.0, due_s - time.monotonic())


def _ignore(*_: Any) -> None:
    """SIGCHLD needs a handler for the wake-up socket to be written to."""


def main() -> None:
    """Main function of the warm parent: `argv` holds the file that it and its workers hold, the
    socket's descriptor, and the parent."""
    held = sys.argv[1]
    fd, parent, *inherited = map(int, sys.argv[2:])
    process_control.die_with_parent(parent)
    hold(held)
    process_control.adopt_orphans()
    threads.limit_imports(os.environ)
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    warm = WarmParent(sock, parent, inherited, held)
    # Registered first, it is done last: modules may end by themselves what they started.
    atexit.register(warm.outlive_all)
    if not warm.serve():
        warm.outlive_all()
        # End what the user's modules started at their import, and this process with it.
        process_control.kill_group(os.getpid())
