"""The warm parent: a process with one thread that has imported the user's modules and forks.

It speaks with the controller over one socket:

    controller: ["load", entry, payload]  ["signal", worker, n]
                ["fork", worker] and with it a file descriptor
    here:       ["ready", spawns, why]  ["refused", type, message, traceback]
                ["forked", worker, pid]  ["exited", worker, pid, status]

`entry` is `module:attribute`, an object with `prepare(payload)`, called once here, and
`run(channel)`, called in each worker. When the connection ends, every worker's process group is
killed and this process ends. Where a fork would not be safe, workers are started as fresh
interpreters: slower, and the controller is told why.
"""

from __future__ import annotations

import array
import atexit
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from importlib import import_module
from typing import IO, Any, NoReturn, Protocol

from holdfast.runtime import guard, threads
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Decoder, Message, encode


class Entry(Protocol):
    """What runs in a worker."""

    def prepare(self, payload: bytes) -> None:
        """Load what all workers share."""

    def run(self, channel: Channel) -> None:
        """Be one worker, until there is nothing left to do."""


def find_entry(name: str) -> Entry:
    module, attribute = name.split(":")
    entry: Entry = getattr(import_module(module), attribute)
    return entry


class WarmParent:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = Decoder()
        self._fds: list[int] = []
        self._workers: dict[int, str] = {}
        self._entry: Entry | None = None
        self._entry_name = ""
        self._payload: IO[bytes] | None = None
        self._spawns = False

    def serve(self) -> None:
        """Do as told until the connection ends, then end every worker."""
        waker, wakes = socket.socketpair()
        for end in (waker, wakes):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        self._private = (waker, wakes)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(waker, select.POLLIN)
        try:
            while self._turn(poll, waker):
                pass
        finally:
            for pid in list(self._workers):
                guard.kill_group(pid)

    def _turn(self, poll: select.poll, waker: socket.socket) -> bool:
        for fd, _ in poll.poll():
            if fd == waker.fileno():
                waker.recv(4096)
                self._reap()
            elif not self._listen():
                return False
        return True

    def _listen(self) -> bool:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(1 << 18, socket.CMSG_SPACE(64 * 4))
        except ConnectionError:
            return False
        if not data:
            return False
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds += array.array("i", raw)
        for message in self._decoder.feed(data):
            self._obey(message)
        return True

    def _obey(self, message: Message) -> None:
        match message:
            case ["load", str(entry), bytes(payload)]:
                self._load(entry, payload)
            case ["fork", str(worker)]:
                self._start(worker, self._fds.pop(0))
            case ["signal", str(worker), int(signum)]:
                for pid, name in self._workers.items():
                    if name == worker:
                        self._signal(pid, signum)
            case _:
                raise ValueError(f"not an order: {message!r:.200}")

    def _signal(self, pid: int, signum: int) -> None:
        # An order to end goes to the worker, which tidies up; death goes to its whole group.
        if signum == signal.SIGKILL:
            guard.kill_group(pid)
        else:
            os.kill(pid, signum)

    def _tell(self, message: Message) -> None:
        self._socket.sendall(encode(message))

    def _load(self, name: str, payload: bytes) -> None:
        try:
            self._entry = find_entry(name)
            self._entry.prepare(payload)
        except BaseException as error:
            # Told to the controller, which ends the experiment with it.
            text = "".join(traceback.format_exception(error))
            self._tell(["refused", type(error).__name__, str(error), text])
            return
        guard.load()
        gc.collect()
        gc.freeze()
        unsafe = threads.unsafe_to_fork()
        self._spawns = bool(unsafe) or not threads.fork_works()
        if self._spawns:
            self._entry_name = name
            self._payload = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as we are
            self._payload.write(payload)
            self._payload.flush()
        self._tell(["ready", self._spawns, ", ".join(unsafe)])

    def _start(self, worker: str, fd: int) -> None:
        pid = self._spawn(fd) if self._spawns else self._fork(fd)
        os.close(fd)
        self._workers[pid] = worker
        self._tell(["forked", worker, pid])

    def _fork(self, fd: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(fd, parent)
        # Both sides set the group, so that neither can be too late to signal it.
        try:
            os.setpgid(pid, pid)
        except (PermissionError, ProcessLookupError):
            return pid
        return pid

    def _become_worker(self, fd: int, parent: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            guard.die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for private in (self._socket, *self._private):
                private.close()
            assert self._entry is not None
            be_worker(self._entry, fd)
        finally:
            os._exit(70)

    def _spawn(self, fd: int) -> int:
        assert self._payload is not None
        payload = self._payload.fileno()
        command = guard.python_command(
            "holdfast.runtime.warm:spawned_worker",
            [self._entry_name, str(fd), str(payload), str(os.getpid())],
        )
        process = subprocess.Popen(command, pass_fds=(fd, payload), process_group=0)
        # Reaped by `_reap`, as every worker is.
        process.returncode = 0
        return process.pid

    def _reap(self) -> None:
        while self._workers:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._workers.pop(pid, None)
            if worker is not None:
                # What the worker started must not outlive it.
                guard.kill_group(pid)
                self._tell(["exited", worker, pid, status])


def be_worker(entry: Entry, fd: int) -> NoReturn:
    """Run `entry` in this process over the socket `fd`, then end without returning."""
    status = 70
    atexit._clear()
    try:
        entry.run(Channel(socket.socket(fileno=fd)))
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        # Nobody above us is left to be told but the trial's stderr.
        traceback.print_exc()
    finally:
        _leave(status)


def _leave(status: int) -> NoReturn:
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _ignore(*_: Any) -> None:
    """SIGCHLD needs a handler for the wake-up socket to be written to."""


def spawned_worker() -> NoReturn:
    """Main function of a worker that was not forked."""
    name, fd, payload, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    guard.die_with_parent(parent)
    threads.limit_imports(os.environ)
    entry = find_entry(name)
    entry.prepare(os.pread(payload, os.fstat(payload).st_size, 0))
    be_worker(entry, fd)


def main() -> None:
    """Main function of the warm parent: `argv` holds the socket's descriptor and the parent."""
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    guard.die_with_parent(parent)
    threads.limit_imports(os.environ)
    WarmParent(socket.socket(fileno=fd)).serve()
