"""The process that a job's command runs under, so that nothing of it outlives its runner.

It adopts what the command leaves behind (Linux), holds the job's lock until all of that is gone,
and ends it all when its runner dies, whatever the cause. The runner sends signals to deliver, one
byte each: a number of a signal. The guard answers with the exit code, as text.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from holdfast.dataclass import dataclass
from holdfast.runtime import process_control
from holdfast.runtime.orphans import Orphans, children
from holdfast.runtime.process_control import Title, hold
from holdfast.schema import decode, to_fields

# The time that the command of a runner that was killed has to end; its trials save what they have.
ORPHANED_GRACE_S = 20.0
# The time that an interrupted command has: holdfast's own deadlines are shorter.
INTERRUPTED_GRACE_S = 300.0
_CANNOT_RUN = 127
_WORD = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The command to run, in the guard's environment. `held` are files whose lock counts as long
    as something runs. `title` is for `ps`."""

    title: str
    command: Sequence[str]
    directory: str
    stdout: str
    stderr: str
    held: Sequence[str] = ()

    def words(self) -> list[str]:
        """The arguments for `main`: a word of Linux has at most 128 KiB."""
        text = json.dumps(to_fields(self))
        parts = [text[at : at + _WORD] for at in range(0, len(text), _WORD)]
        return [str(len(parts)), *parts]


def main() -> None:
    """`argv` has the number of the order's parts, the parts, the socket's descriptor, the runner's
    pid, and the descriptor of the job's lock, which only has to stay open."""
    descriptor = int(sys.argv[1]) + 2
    order: Order = decode(Order, json.loads("".join(sys.argv[2:descriptor])))
    Title("queue job", order.title, "queue").show()
    sock = socket.socket(fileno=int(sys.argv[descriptor]))
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the runner decides
    hold(order.held)
    process_control.adopt_orphans()
    code = Guard(sock, order).serve()
    with suppress(OSError):  # the runner is gone
        sock.sendall(str(code).encode())


class Guard:
    """One command, from its start until everything that it has started is gone."""

    def __init__(self, sock: socket.socket, order: Order) -> None:
        self._socket = sock
        self._order = order
        self._kill_at = float("inf")
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> int:
        """The exit code; negative for a signal."""
        try:
            process = self._start()
        except OSError as error:
            with open(self._order.stderr, "a") as log:
                print(f"cannot run {self._order.command[0]}: {error}", file=log)
            return _CANNOT_RUN
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while process.poll() is None:
            left_s = max(0.0, self._kill_at - time.monotonic())
            ready = poll.poll(None if self._kill_at == float("inf") else left_s * 1000)
            if time.monotonic() >= self._kill_at:
                process_control.kill_group(process.pid)
                self._kill_at = float("inf")
            for descriptor, _ in ready:
                if descriptor == self._woken:
                    os.read(self._woken, 1 << 12)
                    _reap(children() - {process.pid})
                else:
                    self._hear(poll, process.pid)
        process_control.kill_group(process.pid)
        self._end_orphans()
        return process.returncode

    def _start(self) -> subprocess.Popen[bytes]:
        order, guard = self._order, os.getpid()
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

        def as_in_a_shell() -> None:
            process_control.die_with_parent(guard)
            for signum in signals:
                signal.signal(signum, signal.SIG_DFL)

        process_control.load()
        with open(order.stdout, "ab") as out, open(order.stderr, "ab") as err:
            return subprocess.Popen(
                order.command,
                cwd=order.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=as_in_a_shell,
            )

    def _hear(self, poll: select.poll, pid: int) -> None:
        try:
            orders = self._socket.recv(64)
        except OSError:
            orders = b""
        if not orders:  # the runner is gone
            poll.unregister(self._socket)
            self._signal(pid, signal.SIGTERM, ORPHANED_GRACE_S)
        for signum in orders:
            self._signal(pid, signum, INTERRUPTED_GRACE_S)

    def _signal(self, pid: int, signum: int, grace_s: float) -> None:
        process_control.kill_group(pid, signum)
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def _end_orphans(self) -> None:
        """End what has left the command's group. What survives SIGKILL hangs in the kernel."""
        orphans = Orphans(frozenset())
        while orphans.end(time.monotonic()):
            due_s = max(0.0, orphans.due_s - time.monotonic())
            if select.select([self._woken], [], [], due_s)[0]:
                os.read(self._woken, 1 << 12)
            for pid in _reap(children()):
                orphans.forget(pid)


def _reap(pids: Iterable[int]) -> list[int]:
    """Those of these children that have ended."""
    ended = []
    for pid in pids:
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                ended.append(pid)
    return ended
