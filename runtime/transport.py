"""Blocking calls on a socket: the end of a connection in a worker or a service."""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from holdfast.forked import close_in_children
from holdfast.late import is_late
from holdfast.runtime.errors import WireError
from holdfast.runtime.wire import LARGEST_FRAME, Decoder, Message, encode

# Smaller than the allocations that malloc maps separately: with 256 KiB, each message took four
# more system calls and a TLB flush on every core, and the rate dropped to a third.
CHUNK_BYTES = 1 << 16


def readable(fd: int, timeout_s: float) -> bool:
    """Whether `fd` becomes readable in time. Uses `poll`: `select` refuses descriptors above
    1,023."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


class Transport(Protocol):
    """One end of a connection, for code that may block."""

    def send(self, message: Message) -> None:
        """Raises ConnectionError if the other end is gone, WireError if the message is too
        large."""

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None at the end of the connection. Raises TimeoutError."""

    def close(self) -> None: ...


class Channel:
    """A blocking `Transport` over a stream socket. `send` may be called from several threads.

    It owns the descriptor: a socket object around it takes 0.2 ms of a forked worker's start.
    """

    def __init__(
        self,
        fd: int,
        *,
        largest: int = LARGEST_FRAME,
        largest_sent: int = LARGEST_FRAME,
        pause_s: float | None = None,
    ) -> None:
        """`largest` and `largest_sent` limit the bytes of a received and a sent frame. `pause_s`
        limits a pause of the other end in the middle of a frame; None for no limit."""
        # After socket.setdefaulttimeout(), a new socket does not block, nor does its other owner.
        os.set_blocking(fd, True)
        self._fd = fd
        self._pause_s = pause_s
        self._largest_sent = largest_sent
        self._decoder = Decoder(largest)
        self._waiting: deque[Message] = deque()
        self._sending = threading.Lock()
        # A forked child must neither send on the connection nor keep it open.
        close_in_children(self)

    def fileno(self) -> int:
        return self._fd

    def send(self, message: Message) -> None:
        data = encode(message)
        if len(data) > self._largest_sent + 4:
            raise WireError(
                f"a message of {len(data):,} bytes, the other end takes {self._largest_sent:,}"
            )
        with self._sending:
            fd = self._fd
            if fd < 0:
                raise ConnectionError("the connection is closed, or the parent process has it")
            sent = os.write(fd, data)
            while sent < len(data):
                sent += os.write(fd, memoryview(data)[sent:])

    def receive(self, timeout_s: float | None = None) -> Message | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._waiting:
            if deadline is not None:
                left_s = max(0.0, deadline - time.monotonic())
                if not readable(self._fd, left_s):
                    raise TimeoutError(f"no message within {timeout_s} s")
            elif self._decoder.part and self._pause_s is not None:
                self._await_more(self._pause_s)
            try:
                data = os.read(self._fd, CHUNK_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._waiting.extend(self._decoder.feed(data))
        return self._waiting.popleft()

    def _await_more(self, pause_s: float) -> None:
        """Wait for more of a frame. If this process was suspended itself, it waits the whole time
        again. Raises WireError."""
        began = time.monotonic()
        while not readable(self._fd, pause_s):
            began, due = time.monotonic(), began + pause_s
            if not is_late(due, began):
                raise WireError(
                    f"the other end stopped in the middle of a message for {pause_s:g} s"
                )

    def close(self) -> None:
        """Close the connection; further calls have no effect.

        A thread that is sending ends before, with an error: otherwise it could write into a file
        that gets the descriptor's number.
        """
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if not self._sending.acquire(blocking=False):
            shut_down(fd, socket.SHUT_RDWR)
            self._sending.acquire()
        try:
            os.close(fd)
        finally:
            self._sending.release()

    def close_in_child(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:  # without the lock, which a thread of the parent may have held
            os.close(fd)


def shut_down(fd: int, how: int) -> None:
    """Shut down the socket of a descriptor; calls of other threads for it return."""
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as sock:
        sock.shutdown(how)


_DIES_WITHIN_S = 1.0


def remove_left(paths: Sequence[str], controller: int) -> None:
    """Remove the sockets at these paths if the process with the pid `controller`, this one's
    parent, has died. Anything else there stays."""
    if not _has_died(controller):
        return
    for path in paths:
        with suppress(OSError):  # it is gone already, or its folder is
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)


def _has_died(pid: int) -> bool:
    """True if a process is dead. Its connections end a moment before itself."""
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return readable(descriptor, _DIES_WITHIN_S)
        finally:
            os.close(descriptor)
    else:
        return os.getppid() != pid
