"""Connections between processes, on the event loop: frames in and out, and nothing blocks.

A `Connection` is the controller's end of a socket pair. A `Link` is an end of a connection between
controller and agent, whose bytes go through a codec: over TLS, or over a pair of pipes.
`holdfast.runtime.transport` has the blocking end, for workers and services.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from holdfast.forked import close_in_children
from holdfast.late import is_late
from holdfast.runtime.errors import WireError
from holdfast.runtime.tasks import happens
from holdfast.runtime.transport import CHUNK_BYTES, readable, shut_down
from holdfast.runtime.wire import LARGEST_FRAME, LARGEST_FROM_WORKER, Decoder, Message, encode

OnMessage = Callable[[Message], None]
OnClosed = Callable[[str], None]

# How long the other end may pause in the middle of a message.
PAUSE_S = 60.0
# The largest frame between controller and agent: a worker's message, with the worker's name.
LARGEST = LARGEST_FROM_WORKER + (1 << 12)
# A process that does not read must not fill the memory of this one.
MOST_UNSENT = 1 << 32
# Above this many unsent bytes, no further parts of a file are read for the other end.
_MUCH_UNSENT = 1 << 20
_WAIT_S = 60.0
# Process, user and group of a sender, from the kernel (`struct ucred`).
_CRED = struct.Struct("iii")


class _Frames:
    """Frames over a descriptor to read and one to write, which are equal for a socket.

    They are read directly rather than through an asyncio transport: setting one up costs 120 µs,
    as much as a whole report.
    """

    def __init__(self, reads: int, writes: int, largest: int) -> None:
        self._reads, self._writes = reads, writes
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(largest)
        self._read: Callable[[], bytes] = partial(os.read, reads, CHUNK_BYTES)
        self._on_message: OnMessage = _ignore
        self._on_closed: OnClosed = _ignore
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._unsent_bytes = 0
        self.is_open = True

    def drain(self) -> None:
        """Handle messages that have already arrived, without waiting for the loop."""
        while self.is_open and readable(self._reads, 0):
            self._on_readable()

    def close(self) -> None:
        """End the connection from this side, at once; `on_closed` is not called."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._reads)
            if self._unsent:
                self._loop.remove_writer(self._writes)
            self._close()

    def fail(self, reason: str) -> None:
        """End the connection from this side, and call `on_closed`."""
        if self.is_open:
            self.close()
            self._on_closed(reason)

    def close_in_child(self) -> None:
        """Close without the loop: a forked child shares the parent's epoll descriptor."""
        if self.is_open:
            self.is_open = False
            self._close()

    def _close(self) -> None:
        while self._unsent:
            _close_all(self._unsent.popleft()[1])
        _close_all({self._reads, self._writes} - {-1})

    def _write(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Write as much as the other end takes now, and the rest later."""
        sent = 0
        if not self._unsent:
            sent = self._write_some(data, fds)
            if sent == len(data):
                return
            self._loop.add_writer(self._writes, self._on_writable)
        self._unsent.append((memoryview(data)[sent:], [] if sent else [os.dup(fd) for fd in fds]))
        self._unsent_bytes += len(data) - sent
        if self._unsent_bytes > MOST_UNSENT:
            self.fail(f"it did not read {MOST_UNSENT >> 30} GiB that were sent to it")

    def _write_some(self, data: bytes | memoryview, fds: Sequence[int]) -> int:
        """Returns how much was sent: the descriptors go with the first byte."""
        try:
            return self._send_fds(data, fds) if fds else os.write(self._writes, data)
        except BlockingIOError:
            return 0
        except OSError:
            # The reading side sees the end of the connection and reports it.
            return len(data)

    def _send_fds(self, data: bytes | memoryview, fds: Sequence[int]) -> int:
        raise NotImplementedError  # only a socket on this machine takes descriptors

    def _on_writable(self) -> None:
        while self._unsent:
            queued, held = self._unsent.popleft()
            sent = self._write_some(queued, held)
            self._unsent_bytes -= sent
            if sent:
                _close_all(held)
            if sent < len(queued):
                self._unsent.appendleft((queued[sent:], () if sent else held))
                return
        self._loop.remove_writer(self._writes)

    def _on_readable(self) -> None:
        try:
            data = self._read()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.fail("")
            return
        try:
            self._handle(data)
        except WireError as error:
            # Raised by the decoder, or by a receiver for a message that is not valid.
            self.fail(str(error))

    def _handle(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if self.is_open:
                self._on_message(message)
        if self._decoder.part:
            self._on_part()

    def _on_part(self) -> None:
        """A part of a message has arrived."""


class Connection(_Frames):
    """The controller's end of a socket pair: messages arrive by callback on the loop, and sending
    never blocks. File descriptors may travel with a message."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: OnMessage,
        on_closed: OnClosed,
        *,
        largest: int = LARGEST_FRAME,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`on_closed` is called once, on the loop, with the reason; "" if the other end closed it.

        If the other end stops in the middle of a message for `pause_s` seconds, the connection
        ends.
        """
        sock.setblocking(False)
        super().__init__(sock.fileno(), sock.fileno(), largest)
        self._socket = sock
        self._on_message, self._on_closed = on_message, on_closed
        self._pause_s = pause_s
        self._pause_timer: asyncio.TimerHandle | None = None
        self._received = 0
        self.peer_pid = 0
        if _ask_who_sends(sock):
            self._read = self._read_with_sender
        self._loop.add_reader(self._reads, self._on_readable)
        close_in_children(self)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send as much as the socket takes now, and the rest later. Ignored after the end.

        `fds` may be closed as soon as this returns.
        """
        if self.is_open:
            self._write(encode(message), fds)

    def end(self) -> None:
        """Handle messages that have arrived, and close. Called if the other process is known to
        have ended.

        uvloop does not report the end of a process that left data unread: the kernel shows this as
        an error of the socket, and libuv then stops watching it.
        """
        self.drain()
        self.fail("")

    def close(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        super().close()

    def _close(self) -> None:
        super()._close()
        self._socket.detach()

    def _send_fds(self, data: bytes | memoryview, fds: Sequence[int]) -> int:
        return socket.send_fds(self._socket, [data], list(fds))

    def _read_with_sender(self) -> bytes:
        data, ancillary, _, _ = self._socket.recvmsg(CHUNK_BYTES, socket.CMSG_SPACE(_CRED.size))
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(raw) >= 12:
                self.peer_pid = _CRED.unpack_from(raw)[0]
        # Once is enough. Messages that were already sent with credentials can be read without.
        self._read = partial(os.read, self._reads, CHUNK_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return data

    def _on_part(self) -> None:
        self._received += 1
        if self._pause_timer is None and self.is_open:
            self._await_more()

    def _await_more(self) -> None:
        due = self._loop.time() + self._pause_s
        self._pause_timer = self._loop.call_at(due, self._judge_pause, self._received, due)

    def _judge_pause(self, received: int, due: float) -> None:
        """Read what has arrived before judging. If this process was suspended, begin again."""
        self._pause_timer = None
        was_late = is_late(due, self._loop.time())
        self.drain()
        if not (self.is_open and self._decoder.part) or self._pause_timer is not None:
            return
        if was_late or self._received != received:
            self._await_more()
        else:
            self.fail(f"it stopped in the middle of a message for {self._pause_s:g} s")


class Codec(Protocol):
    """Converts between messages' bytes and those on the connection."""

    def receive(self, data: bytes) -> bytes:
        """The plain bytes in `data`. Raises WireError."""

    def send(self, data: bytes) -> None: ...

    @property
    def has_more(self) -> bool:
        """True if `take` may return something."""

    def take(self) -> bytes:
        """What must be written to the connection now."""


class Link(_Frames):
    """One end of a connection between controller and agent.

    What is sent in one turn of the loop is written together at its end, as one TLS record: with
    many workers per agent, this halves the controller's CPU for each report. Answers to what was
    read together are written as soon as all of it is handled. After a turn with one message, the
    first message of the next turn does not wait: that took a quarter of the time of a single
    trial's report.
    """

    def __init__(
        self, reads: int, writes: int, codec: Codec, *, largest: int = LARGEST, name: str = ""
    ) -> None:
        """It owns both descriptors, which are equal for a socket. `largest` limits a received
        frame; `name` is that of the other end, for messages."""
        super().__init__(reads, writes, largest)
        self.codec = codec
        self.name = name
        self._is_flushing = self._is_finishing = self._is_handling = False
        # Messages of this turn of the loop, and if more than one was sent in the last one.
        self._sent = 0
        self._is_busy = False
        self._has_room = asyncio.Event()
        self.received_s = self._loop.time()

    def begin(self, on_message: OnMessage, on_closed: OnClosed) -> None:
        """Begin to read. `on_closed` is called once, with the reason; "" if the other end closed
        the connection, or is gone."""
        self.hand_over(on_message, on_closed)
        for fd in {self._reads, self._writes}:
            os.set_blocking(fd, False)
        self._loop.add_reader(self._reads, self._on_readable)
        close_in_children(self)
        self._flush_soon()

    def hand_over(
        self, on_message: OnMessage, on_closed: OnClosed, largest: int | None = None
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

        A deadline is the business of `end_if_silent`.
        """
        self.flush()
        while self.is_open and self._unsent_bytes > _MUCH_UNSENT:
            self._has_room.clear()
            await happens(self._has_room, _WAIT_S)
        return self.is_open

    def finish(self) -> None:
        """Send what is left, then let the other end see the end. It answers by its own end, and
        has read everything by then."""
        self._is_finishing = True
        self.flush()
        if self.is_open and not self._unsent:
            self._end_writing()

    def flush(self) -> None:
        """Write what the other end takes now; the rest follows by itself."""
        if not self.is_open or self._writes < 0 or not self.codec.has_more:
            return
        if data := self.codec.take():
            self._write(data)

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_flushing = False
        self._is_busy, self._sent = self._sent > 1, 0
        self.flush()

    def _close(self) -> None:
        self._has_room.set()
        super()._close()

    def _on_writable(self) -> None:
        super()._on_writable()
        if self._unsent_bytes <= _MUCH_UNSENT:
            self._has_room.set()
        if self._is_finishing and not self._unsent:
            self._end_writing()

    def _end_writing(self) -> None:
        if self._writes < 0:
            return
        if self._writes != self._reads:
            os.close(self._writes)
        else:
            shut_down(self._writes, socket.SHUT_WR)
        self._writes = -1

    def _handle(self, data: bytes) -> None:
        self.received_s = self._loop.time()
        self._is_handling = True
        try:
            super()._handle(self.codec.receive(data))
        finally:
            self._is_handling = False
            self.flush()


async def end_if_silent(link: Link, lease_s: float, *, forgives: bool) -> None:
    """Return when the connection has ended, at the latest when the other end is lost.

    An agent sends heartbeats, and the controller answers each: an agent that is not heard gets no
    answer, so both sides notice a connection that is cut in one direction only. The agent's lease
    is the shorter one: it has ended its workers when the controller gives their trials to other
    nodes. `forgives`: if this end was late itself, the other one may have been, too, on the same
    machine, and gets its whole lease again. An agent must not forgive: its trials may run
    elsewhere by now.
    """
    loop = asyncio.get_running_loop()
    began = since = loop.time()
    while link.is_open:
        due = since + lease_s
        await asyncio.sleep(due - loop.time())
        link.drain()  # a late reader finds only now what had arrived before
        now, since = loop.time(), max(since, link.received_s)
        if not link.is_open or now < since + lease_s:
            continue
        if forgives and is_late(due, now):
            since = now
        else:
            link.fail(f"not heard for {now - max(began, link.received_s):.3g} s")


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


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _ignore(*_: object) -> None:
    """Until `begin`."""
