"""One end of a connection, for code that may block: a worker's."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from typing import Protocol

from holdfast.runtime.wire import LARGEST_FRAME, Decoder, Message, encode

CHUNK_BYTES = 1 << 18


def readable(sock: socket.socket, timeout_s: float) -> bool:
    """`poll`, since `select` refuses descriptors above 1,023."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


class Transport(Protocol):
    """One end of a connection, for code that may block."""

    def send(self, message: Message) -> None:
        """Raises ConnectionError when the other end is gone."""

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None at the end of the connection. Raises TimeoutError."""

    def close(self) -> None: ...


class Channel:
    """A blocking `Transport` over a stream socket. `send` may be called from several threads."""

    def __init__(self, sock: socket.socket, *, largest: int = LARGEST_FRAME) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._decoder = Decoder(largest)
        self._waiting: deque[Message] = deque()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        with self._sending:
            self._socket.sendall(encode(message))

    def receive(self, timeout_s: float | None = None) -> Message | None:
        while not self._waiting:
            if timeout_s is not None and not readable(self._socket, timeout_s):
                raise TimeoutError(f"no message within {timeout_s} s")
            try:
                data = self._socket.recv(CHUNK_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._waiting.extend(self._decoder.feed(data))
        return self._waiting.popleft()

    def close(self) -> None:
        self._socket.close()
