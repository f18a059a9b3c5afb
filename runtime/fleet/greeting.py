"""Connections whose agent has not introduced itself: they reach nothing, and have little time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.names import shown
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.claims import Hello, read_hello
from holdfast.runtime.fleet.link import Link
from holdfast.runtime.fleet.tickets import Ticket, Tickets
from holdfast.runtime.fleet.tls import TlsCodec
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Message

Admit = Callable[[Link, Ticket, Hello], None]


class Greeting:
    """Waits for the hello of each new connection, and checks its ticket."""

    def __init__(
        self,
        tickets: Tickets,
        admit: Admit,
        *,
        tasks: TaskScope,
        turned_away: Callable[[Link, str], None],
    ) -> None:
        """`admit` gets the link of an agent that has shown its ticket, and takes it over.
        `turned_away` is called with any other, and why; "" if the other end closed it."""
        self._tickets = tickets
        self._admit = admit
        self._tasks = tasks
        self._turned_away = turned_away
        self.pending: set[Link] = set()
        # Called when a pending connection is one no more.
        self.on_room: Callable[[], None] = lambda: None

    def receive(self, link: Link, within_s: float, ticket: str = "") -> None:
        """Wait for the hello; over a pipe, `ticket` is known already."""
        self.pending.add(link)
        link.begin(partial(self._on_hello, link, ticket), partial(self._on_closed, link))
        self._tasks.later(within_s, self._on_late, link, within_s)

    def expect_certificate(self, link: Link, within_s: float) -> None:
        """End a connection over TLS that shows no certificate within this time. Whoever has none
        takes the place of an agent for a short time only."""
        self._tasks.later(within_s, self._on_nameless, link, within_s)

    def close(self) -> None:
        for link in list(self.pending):
            link.close()
        self.pending.clear()

    def _on_hello(self, link: Link, ticket_name: str, message: Message) -> None:
        hello = read_hello(message)
        # Over TLS, the certificate is of one ticket, too.
        expected = link.codec.peer if isinstance(link.codec, TlsCodec) else ticket_name
        if hello.ticket != expected:
            raise WireError(f"its ticket {shown(hello.ticket)} is not its own")
        ticket = self._tickets.redeem(hello.ticket, hello.token)
        if ticket is None:
            raise WireError("its ticket is unknown, or was used before")
        self._forget(link)
        self._admit(link, ticket, hello)

    def _on_closed(self, link: Link, reason: str) -> None:
        self._forget(link)
        self._turned_away(link, reason)

    def _on_late(self, link: Link, within_s: float) -> None:
        if link in self.pending:
            link.drain()
            if link in self.pending:
                link.fail(f"it did not introduce itself within {within_s:g} s")

    def _on_nameless(self, link: Link, within_s: float) -> None:
        assert isinstance(link.codec, TlsCodec)
        if link in self.pending and not link.codec.peer:
            link.drain()
            if link in self.pending and not link.codec.peer:
                link.fail(f"it showed no certificate within {within_s:g} s")

    def _forget(self, link: Link) -> None:
        self.pending.discard(link)
        self.on_room()
