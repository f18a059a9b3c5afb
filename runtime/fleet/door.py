"""The controller's port, for agents that connect over TLS: bound to one address, opened at the
first invitation that needs it."""

from __future__ import annotations

import asyncio
import socket
import ssl

from holdfast.forked import close_in_children
from holdfast.runtime.fleet.greeting import Greeting
from holdfast.runtime.fleet.link import Link
from holdfast.runtime.fleet.settings import LARGEST_BEFORE_HELLO, FleetSettings
from holdfast.runtime.fleet.tls import TlsCodec
from holdfast.runtime.tasks import TaskScope

_BACKLOG = 1024
# So many are accepted in one turn of the loop.
_PER_TURN = 16
# The pause after the process has run out of descriptors.
_PAUSE_S = 1.0


class Door:
    """Accepts connections while fewer than `most_pending` are pending; the kernel queues the
    others."""

    def __init__(
        self,
        greeting: Greeting,
        settings: FleetSettings,
        context: ssl.SSLContext,
        tasks: TaskScope,
    ) -> None:
        """Raises OSError if the address is not one of this machine's."""
        self._greeting = greeting
        self._settings = settings
        self._context = context
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._socket = _listen(settings.address)
        self._is_accepting = False
        self.port: int = self._socket.getsockname()[1]
        greeting.on_room = self._accept_more
        close_in_children(self)
        self._accept_more()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._stop()
            self._socket.close()

    def close_in_child(self) -> None:
        self._socket.close()

    @property
    def _is_full(self) -> bool:
        return len(self._greeting.pending) >= self._settings.most_pending

    def _accept_more(self) -> None:
        if not self._is_accepting and not self._is_full and self._socket.fileno() >= 0:
            self._is_accepting = True
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _stop(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        try:
            for _ in range(_PER_TURN):
                if not self._is_full:
                    self._receive(*self._socket.accept())
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor is free
            self._tasks.later(_PAUSE_S, self._accept_more)
            self._stop()
        if self._is_full:
            self._stop()

    def _receive(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        no_delay(sock)
        fd = sock.detach()
        codec = TlsCodec(self._context, is_server=True)
        link = Link(fd, fd, codec, largest=LARGEST_BEFORE_HELLO, name=peer[0])
        self._greeting.receive(link, self._settings.hello_s)
        self._greeting.expect_certificate(link, self._settings.certificate_s)


def no_delay(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _listen(address: str) -> socket.socket:
    ((family, kind, protocol, _, place), *_) = socket.getaddrinfo(
        address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sock = socket.socket(family, kind, protocol)
    try:
        sock.bind(place)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
