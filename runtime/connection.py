"""The controller's end of a connection: runs on the event loop and never blocks."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.forked import close_in_children
from holdfast.late import is_late
from holdfast.runtime.errors import WireError
from holdfast.runtime.transport import CHUNK_BYTES, readable
from holdfast.runtime.wire import LARGEST_FRAME, Decoder, Message, encode

# How long the other end may pause in the middle of a message.
REST_S = 60.0
# Process, user and group of a sender, from the kernel (`struct ucred`).
_CRED = struct.Struct("iii")


def _ask_who_sends(sock: socket.socket) -> bool:
    """Let the kernel name the sender of the first bytes (Linux). SO_PEERCRED would name the
    process that created the socket pair, which is this one."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    except OSError:  # some sandboxes do not support it
        return False
    return True


class Connection:
    """The controller's end: messages arrive by callback on the loop, sending never blocks.

    A socket is read directly rather than through an asyncio transport: setting one up costs
    120 µs, as much as a whole report. File descriptors may travel with a message.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[Message], None],
        on_closed: Callable[[str], None],
        *,
        largest: int = LARGEST_FRAME,
        rest_s: float = REST_S,
    ) -> None:
        """`on_closed` is called once, on the loop, with the reason; "" if the other end closed it.

        If the other end stops in the middle of a message for `rest_s` seconds, the connection
        ends.
        """
        sock.setblocking(False)
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(largest)
        self._on_message = on_message
        self._on_closed = on_closed
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._rest_s = rest_s
        self._rest_timer: asyncio.TimerHandle | None = None
        self._received = 0
        self.peer_pid = 0
        self._is_asking = _ask_who_sends(sock)
        self.is_open = True
        self._loop.add_reader(sock.fileno(), self._on_readable)
        close_in_children(self)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send as much as the socket takes now, and the rest later. Ignored after the end.

        `fds` may be closed as soon as this returns.
        """
        if not self.is_open:
            return
        data = memoryview(encode(message))
        if not self._unsent:
            data, fds = self._send_some(data, fds)
        if data:
            if not self._unsent:
                self._loop.add_writer(self._socket.fileno(), self._on_writable)
            self._unsent.append((data, [os.dup(fd) for fd in fds]))

    def drain(self) -> None:
        """Handle messages that have already arrived, without waiting for the loop."""
        while self.is_open and readable(self._socket.fileno(), 0):
            self._on_readable()

    def end(self) -> None:
        """Handle messages that have arrived, and close. Called if the other process is known to
        have ended.

        uvloop does not report the end of a process that left data unread: the kernel shows this as
        an error of the socket, and libuv then stops watching it.
        """
        self.drain()
        self._end("")

    def close(self) -> None:
        """End the connection from this side; `on_closed` is not called."""
        if self.is_open:
            self.is_open = False
            if self._rest_timer is not None:
                self._rest_timer.cancel()
            self._loop.remove_reader(self._socket.fileno())
            if self._unsent:
                self._loop.remove_writer(self._socket.fileno())
            self._close()

    def close_in_child(self) -> None:
        """Close without the loop: a forked child shares the parent's epoll descriptor."""
        if self.is_open:
            self.is_open = False
            self._close()

    def _close(self) -> None:
        while self._unsent:
            _close_all(self._unsent.popleft()[1])
        self._socket.close()

    def _send_some(self, data: memoryview, fds: Sequence[int]) -> tuple[memoryview, Sequence[int]]:
        try:
            if fds:
                sent = socket.send_fds(self._socket, [data], list(fds))
            else:
                sent = self._socket.send(data)
        except BlockingIOError:
            return data, fds
        except OSError:
            # The reading side sees the end of the connection and reports it.
            return data[:0], ()
        return data[sent:], ()

    def _on_writable(self) -> None:
        while self._unsent:
            queued, held = self._unsent.popleft()
            data, fds = self._send_some(queued, held)
            if not fds:
                _close_all(held)
            if data:
                self._unsent.appendleft((data, fds))
                return
        self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end("")
            return
        try:
            for message in self._decoder.feed(data):
                if self.is_open:
                    self._on_message(message)
        except WireError as error:
            # Raised by the decoder, or by a receiver for a message that is not valid.
            self._end(str(error))
        if self._decoder.is_within:
            self._received += 1
            if self._rest_timer is None and self.is_open:
                self._await_rest()

    def _receive(self) -> bytes:
        if not self._is_asking:
            return self._socket.recv(CHUNK_BYTES)
        data, ancillary, _, _ = self._socket.recvmsg(CHUNK_BYTES, socket.CMSG_SPACE(_CRED.size))
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(raw) >= 12:
                self.peer_pid = _CRED.unpack_from(raw)[0]
        # Once is enough. Messages that were already sent with credentials can be read with `recv`.
        self._is_asking = False
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return data

    def _await_rest(self) -> None:
        due = self._loop.time() + self._rest_s
        self._rest_timer = self._loop.call_at(due, self._look_for_rest, self._received, due)

    def _look_for_rest(self, received: int, due: float) -> None:
        """Read what has arrived before judging. If this process was suspended, begin again."""
        self._rest_timer = None
        was_late = is_late(due, self._loop.time())
        self.drain()
        if not (self.is_open and self._decoder.is_within) or self._rest_timer is not None:
            return
        if was_late or self._received != received:
            self._await_rest()
        else:
            self._end(f"it stopped in the middle of a message for {self._rest_s:g} s")

    def _end(self, reason: str) -> None:
        if self.is_open:
            self.close()
            self._on_closed(reason)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
