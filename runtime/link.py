"""The controller's end of a connection: on the event loop, never blocking."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.runtime.errors import WireError
from holdfast.runtime.transport import CHUNK_BYTES, readable
from holdfast.runtime.wire import LARGEST_FRAME, Decoder, Message, encode


class Link:
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
    ) -> None:
        """`on_closed` is called once, on the loop, with the reason ("" where the end is plain)."""
        sock.setblocking(False)
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(largest)
        self._on_message = on_message
        self._on_closed = on_closed
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self.is_open = True
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send now what the socket takes, the rest when it has room. To a closed end: nothing.

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
        """Take in what has arrived already, without waiting for the loop to see it."""
        while self.is_open and readable(self._socket.fileno(), 0):
            self._on_readable()

    def end(self) -> None:
        """Take in what has arrived and be closed: another has seen that the other end is gone.

        uvloop is silent about an end that left something unread: the kernel shows that as an error
        of the socket, and libuv then watches it no more.
        """
        self.drain()
        self._end("")

    def close(self) -> None:
        """End the connection from this side; `on_closed` is not called."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._socket.fileno())
            if self._unsent:
                self._loop.remove_writer(self._socket.fileno())
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
            # The reader sees the end of the connection and tells.
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
            data = self._socket.recv(CHUNK_BYTES)
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
            # Raised by the decoder, or by the receiver of what is a frame but no message.
            self._end(str(error))

    def _end(self, reason: str) -> None:
        if self.is_open:
            self.close()
            self._on_closed(reason)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
