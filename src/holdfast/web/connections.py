"""Connections with limits: of their number, and of the time that a client may take."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A page has one stream and a few requests. A browser opens at most six connections.
MOST_CONNECTIONS: Final = 128
# How long a client may take to send a request, or to read what was sent.
_SEND_S: Final = 20.0
_READ_S: Final = 30.0
_GRACE_S: Final = 0.05
_TURNS: Final = count()
_INVALID: Final = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"content-security-policy: default-src 'none'\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"cache-control: no-store\r\n"
    b"connection: close\r\n"
    b"content-length: 40\r\n\r\n"
    b"This request is not HTTP, or too large.\n"
)


class LimitedConnection(H11Protocol):
    """A connection that ends if its client is slow, or silent while there are too many."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _silent_from = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head()
        self._cancel_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._cancel_head()

    def pause_writing(self) -> None:
        """The client does not read: what was sent waits here."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(_READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_read()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """An answer that came before the end of its request ends the connection: the client could
        send the rest for ever."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """With the headers of every answer. Uvicorn calls it for what is not HTTP, and for a
        request whose head is too long."""
        self.transport.write(_INVALID)
        self.transport.close()

    def _make_room(self) -> None:
        """End the one that has waited longest for a request: any user of this machine can open
        connections that say nothing, and a browser says at once what it wants."""
        silent = (
            one
            for one in self.connections
            if isinstance(one, LimitedConnection) and one._head_timer is not None
        )
        # Not by the timers: the loop's clock is the same for all that connect in one turn.
        min(silent, key=lambda one: one._silent_from).transport.abort()

    def _await_head(self) -> None:
        """End the connection if the head of a request does not become complete in time."""
        if self._head_timer is None:
            self._silent_from = next(_TURNS)
            self._head_timer = self.loop.call_later(_SEND_S, self._end_soon)

    def _end_soon(self) -> None:
        """After one more look at the socket: on a busy machine, a request may be there unread. A
        browser does not repeat it on a connection that has answered none before."""
        self._head_timer = self.loop.call_later(_GRACE_S, self.transport.abort)

    def _cancel_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_read(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
