"""A connection between controller and agent, at both ends: over TLS, or over a pair of pipes.

What is sent in one turn of the loop is written together at its end, as one TLS record: with many
workers per agent, this halves the controller's CPU for each report. Answers to what was read
together are written as soon as all of it is handled. After a turn with one message, the first
message of the next turn does not wait: that took a quarter of the time of a single trial's report.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from holdfast.forked import close_in_children
from holdfast.late import is_late
from holdfast.runtime.errors import WireError
from holdfast.runtime.tasks import happens
from holdfast.runtime.transport import CHUNK_BYTES, readable, shut_down
from holdfast.runtime.wire import LARGEST_FROM_WORKER, Decoder, Message, encode


class Liveness:
    """When the other end was last heard, as far as this end could hear."""

    def __init__(self, lease_s: float, *, now: float, forgives: bool) -> None:
        """`forgives`: if this end was late itself, the other one may have been, too, on the same
        machine, and gets its whole lease again. An agent must not forgive: its trials may run
        elsewhere by now."""
        self._lease_s = lease_s
        self._forgives = forgives
        self._since = now

    @property
    def due(self) -> float:
        """When to look next."""
        return self._since + self._lease_s

    def is_lost(self, *, due: float, now: float, heard: float) -> bool:
        """Whether the other end is lost. `due` is the planned time of this look, `now` the actual
        one. `heard` is when the last bytes arrived; what had arrived must have been read before,
        because a late reader finds it only now."""
        self._since = max(self._since, heard)
        if now < self.due:
            return False
        if self._forgives and is_late(due, now):
            self._since = now
            return False
        return True


# A message of a worker, with the worker's name around it.
LARGEST = LARGEST_FROM_WORKER + (1 << 12)
# An agent that does not read is lost anyway, by its beats. Until then it must not fill the memory.
MOST_UNSENT = 1 << 32
# So much may wait before further parts of a file are read.
_MUCH_UNSENT = 1 << 20
_LOOK_S = 60.0


class Codec(Protocol):
    """Converts between messages' bytes and those on the connection."""

    def receive(self, data: bytes) -> bytes:
        """The plain bytes in `data`. Raises WireError."""

    def send(self, data: bytes) -> None: ...

    @property
    def has_more(self) -> bool:
        """Whether `take` may return something."""

    def take(self) -> bytes:
        """What must be written to the connection now."""


class Link:
    """One end: messages arrive by callback on the loop, sending never blocks."""

    def __init__(
        self,
        reads: int,
        writes: int,
        codec: Codec,
        *,
        largest: int = LARGEST,
        name: str = "",
    ) -> None:
        """It owns both descriptors, which are equal for a socket. `largest` limits a received
        frame; `name` is that of the other end, for messages."""
        self._reads, self._writes = reads, writes
        self.codec = codec
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(largest)
        self._on_message: Callable[[Message], None] = _ignore
        self._on_closed: Callable[[str], None] = _ignore
        self._unsent = bytearray()
        self._is_flushing = self._is_blocked = self._is_finishing = False
        self._is_handling = False
        # Messages of this turn of the loop, and whether more than one was sent in the last one.
        self._sent = 0
        self._is_busy = False
        self._has_room = asyncio.Event()
        self.is_open = True
        self.heard_s = self._loop.time()

    def begin(
        self, on_message: Callable[[Message], None], on_closed: Callable[[str], None]
    ) -> None:
        """Begin to read. `on_closed` is called once, with the reason; "" if the other end closed
        the connection, or is gone."""
        self.hand_over(on_message, on_closed)
        for fd in {self._reads, self._writes}:
            os.set_blocking(fd, False)
        self._loop.add_reader(self._reads, self._on_readable)
        close_in_children(self)
        self._flush_soon()

    def hand_over(
        self,
        on_message: Callable[[Message], None],
        on_closed: Callable[[str], None],
        largest: int | None = None,
    ) -> None:
        """From now on, call these."""
        self._on_message, self._on_closed = on_message, on_closed
        if largest is not None:
            self._decoder.largest = largest

    def send(self, message: Message) -> None:
        """Send, at the latest at the end of this turn of the loop. Ignored after the end."""
        if self.is_open and not self._is_finishing:
            self.codec.send(encode(message))
            self._sent += 1
            if self._sent == 1 and not (self._is_busy or self._is_handling):
                self.flush()
            self._flush_soon()

    async def room(self) -> bool:
        """Wait until little waits to be sent. Returns False once the connection has ended.

        How long that may take is the business of whoever watches the other end's beats.
        """
        self.flush()
        while self.is_open and len(self._unsent) > _MUCH_UNSENT:
            self._has_room.clear()
            await happens(self._has_room, _LOOK_S)
        return self.is_open

    def drain(self) -> None:
        """Handle messages that have already arrived, without waiting for the loop."""
        while self.is_open and readable(self._reads, 0):
            self._on_readable()

    def close(self) -> None:
        """End the connection from this side, at once; `on_closed` is not called."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._reads)
            if self._is_blocked:
                self._loop.remove_writer(self._writes)
            self._close()

    def fail(self, reason: str) -> None:
        """End the connection from this side, and call `on_closed`."""
        if self.is_open:
            self.close()
            self._on_closed(reason)

    def finish(self) -> None:
        """Send what is left, then let the other end see the end. It answers by its own end, and
        has read everything by then."""
        self._is_finishing = True
        self.flush()

    def close_in_child(self) -> None:
        """Close without the loop: a forked child shares the parent's epoll descriptor."""
        if self.is_open:
            self.is_open = False
            self._close()

    def _close(self) -> None:
        self._has_room.set()
        for fd in {self._reads, self._writes} - {-1}:
            os.close(fd)

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_flushing = False
        self._is_busy, self._sent = self._sent > 1, 0
        self.flush()

    def flush(self) -> None:
        """Write what the other end takes now; the rest follows by itself."""
        if not self.is_open or self._writes < 0:
            return
        data = self.codec.take() if self.codec.has_more else b""
        if data and not self._unsent and not self._is_finishing:
            data = self._write_some(data)
            if not data:
                return
        self._unsent += data
        if len(self._unsent) > MOST_UNSENT:
            self.fail(f"it did not read {MOST_UNSENT >> 30} GiB that were sent to it")
        elif not self._is_blocked:
            self._write()

    def _write_some(self, data: bytes) -> bytes:
        """Write without a copy. Returns what is left."""
        try:
            return data[os.write(self._writes, data) :]
        except OSError:
            return data

    def _write(self) -> None:
        try:
            while self._unsent:
                with memoryview(self._unsent) as data, data[: 1 << 20] as part:
                    sent = os.write(self._writes, part)
                del self._unsent[:sent]
                if len(self._unsent) <= _MUCH_UNSENT:
                    self._has_room.set()
        except BlockingIOError:
            self._set_blocked(True)
            return
        except OSError:
            # The reading side sees the end of the connection and reports it.
            self._unsent.clear()
        self._set_blocked(False)
        if self._is_finishing:
            self._end_writing()

    def _set_blocked(self, blocked: bool) -> None:
        if blocked and not self._is_blocked:
            self._loop.add_writer(self._writes, self._write)
        elif self._is_blocked and not blocked:
            self._loop.remove_writer(self._writes)
        self._is_blocked = blocked

    def _end_writing(self) -> None:
        if self._writes != self._reads:
            os.close(self._writes)
        else:
            shut_down(self._writes, socket.SHUT_WR)
        self._writes = -1

    def _on_readable(self) -> None:
        try:
            data = os.read(self._reads, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.fail("")
            return
        self.heard_s = self._loop.time()
        try:
            self._handle(data)
        except WireError as error:
            # Raised by the codec, by the decoder, or by a receiver for an invalid message.
            self.flush()
            self.fail(str(error))

    def _handle(self, data: bytes) -> None:
        self._is_handling = True
        try:
            for message in self._decoder.feed(self.codec.receive(data)):
                if self.is_open:
                    self._on_message(message)
        finally:
            self._is_handling = False
        if self.codec.has_more:
            self.flush()


def _ignore(*_: object) -> None:
    """Until `begin`."""


async def end_if_silent(link: Link, lease_s: float, *, forgives: bool) -> None:
    """Return when the connection has ended, at the latest when the other end is lost."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    liveness = Liveness(lease_s, now=began, forgives=forgives)
    while link.is_open:
        due = liveness.due
        await asyncio.sleep(due - loop.time())
        link.drain()
        heard, now = link.heard_s, loop.time()
        if link.is_open and liveness.is_lost(due=due, now=now, heard=heard):
            link.fail(f"not heard for {now - max(began, heard):.3g} s")
