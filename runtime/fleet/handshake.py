"""How an agent reaches the controller: its invitation, then TLS or the pipe of its stdio.

A ticket admits one agent, once. An agent that has not shown its ticket reaches nothing, and has
little time. The controller's port, for agents that connect over TLS, is bound to one address and
opened at the first invitation that needs it. Over a pipe, a first line says where the frames
begin: a login shell may print anything before it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

from holdfast.dataclass import dataclass
from holdfast.forked import close_in_children
from holdfast.names import shown
from holdfast.runtime.connection import Link
from holdfast.runtime.engines.engine import EngineFailed, Invitation, Pipe
from holdfast.runtime.errors import RuntimeFault, WireError
from holdfast.runtime.fleet.facts import LARGEST_BEFORE_HELLO, PROTOCOL, FleetSettings
from holdfast.runtime.fleet.messages import Hello, read_hello
from holdfast.runtime.fleet.tls import Credentials, TlsCodec, tls_context
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.transport import readable
from holdfast.runtime.wire import Decoder, Message, checked, encode
from holdfast.schema import to_row
from holdfast.version import VERSION

if TYPE_CHECKING:
    from holdfast.runtime.fleet.authority import Authority


MAGIC = b"\x00holdfast agent 1\x00\n"
MOST_NOISE = 1 << 16
_SHOWN = 200


class AgentPipeCodec:
    """The agent's end: begins with the line."""

    def __init__(self) -> None:
        self._waiting = [MAGIC]

    def receive(self, data: bytes) -> bytes:
        return data

    def send(self, data: bytes) -> None:
        self._waiting.append(data)

    @property
    def has_more(self) -> bool:
        return bool(self._waiting)

    def take(self) -> bytes:
        data = b"".join(self._waiting)
        self._waiting.clear()
        return data


class ControllerPipeCodec(AgentPipeCodec):
    """The controller's end: skips at most `MOST_NOISE` bytes before the line."""

    def __init__(self) -> None:
        self._noise: bytes | None = b""
        self._waiting = []

    def receive(self, data: bytes) -> bytes:
        """Raises WireError for too much noise."""
        if self._noise is None:
            return data
        noise, magic, rest = (self._noise + data).partition(MAGIC)
        if len(noise) > MOST_NOISE:
            raise WireError(f"no agent answered, but: {noise[:_SHOWN]!r}")
        self._noise = None if magic else noise
        return rest


_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """What an agent reads in its invitation. Without `credentials` it talks over the pipe on which
    it got the invitation; otherwise it connects to `port` at `address`."""

    name: Literal["invitation"] = "invitation"
    ticket: str
    token: bytes
    address: str = ""
    port: int = 0
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """An invited agent that has not introduced itself."""

    name: str
    kind: str
    over_pipe: bool


class Tickets:
    """The tickets of a run. Only hashes of the tokens are kept."""

    def __init__(self) -> None:
        self._hashes: dict[str, bytes] = {}
        self.open: dict[str, Ticket] = {}

    def issue(self, kind: str, *, over_pipe: bool) -> tuple[Ticket, bytes]:
        """A new ticket and its token."""
        ticket = Ticket(name=f"agent-{secrets.token_hex(6)}", kind=kind, over_pipe=over_pipe)
        token = secrets.token_bytes(_TOKEN_BYTES)
        self.open[ticket.name] = ticket
        self._hashes[ticket.name] = hashlib.sha256(token).digest()
        return ticket, token

    def redeem(self, name: str, token: bytes) -> Ticket | None:
        """Use up the ticket. None if it is unknown, was used, or the token is not its own."""
        known = self._hashes.get(name)
        if known is None or not hmac.compare_digest(known, hashlib.sha256(token).digest()):
            return None
        return self.withdraw(name)

    def withdraw(self, name: str) -> Ticket | None:
        """Admit no agent with this ticket. Returns it if it was open."""
        self._hashes.pop(name, None)
        return self.open.pop(name, None)


def encode_invitation(invited: Invited) -> bytes:
    """The bytes that `decode_invitation` reads."""
    return encode(to_row(invited))


def decode_invitation(data: bytes) -> Invited:
    """Raises WireError."""
    for message in Decoder(LARGEST_BEFORE_HELLO).feed(data):
        return checked(Invited, message)
    raise WireError("not an invitation: it is incomplete, or of another program")


_BACKLOG = 1024
# Connections that are accepted in one turn of the loop.
_PER_TURN = 16
# The pause after the process has run out of descriptors.
_ACCEPT_PAUSE_S = 1.0
# How long a refused agent may take to read why.
_READ_S = 5.0


class Port:
    """Accepts connections while fewer than `most_pending` are pending; the kernel queues the
    others."""

    def __init__(
        self,
        settings: FleetSettings,
        pending: Collection[Link],
        on_connected: Callable[[socket.socket, str], None],
        tasks: TaskScope,
    ) -> None:
        """`on_connected` gets each connection and the address of its other end. Raises OSError if
        the settings' address is not one of this machine's."""
        self._most_pending = settings.most_pending
        self._pending = pending
        self._on_connected = on_connected
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._socket = _listen(settings.address)
        self._is_accepting = False
        self.number: int = self._socket.getsockname()[1]
        close_in_children(self)
        self.accept_more()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._stop()
            self._socket.close()

    def close_in_child(self) -> None:
        self._socket.close()

    @property
    def _is_full(self) -> bool:
        return len(self._pending) >= self._most_pending

    def accept_more(self) -> None:
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
                    sock, peer = self._socket.accept()
                    self._on_connected(sock, peer[0])
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor is free
            self._tasks.later(_ACCEPT_PAUSE_S, self.accept_more)
            self._stop()
        if self._is_full:
            self._stop()


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


class Admission:
    """Invites agents, and waits for the hello of each new connection, which shows its ticket."""

    def __init__(
        self,
        settings: FleetSettings,
        tasks: TaskScope,
        *,
        admitted: Callable[[Link, Ticket, Hello], None],
        refused: Callable[[Ticket, str], None],
        tell: Callable[[str], None],
    ) -> None:
        """`admitted` gets the link of an agent that can be a node, and takes it over. `refused`
        gets the ticket of one that cannot, and why."""
        self.tickets = Tickets()
        # How many connections have shown no ticket.
        self.turned_away = 0
        self._settings = settings
        self._tasks = tasks
        self._admitted = admitted
        self._refused = refused
        self._tell = tell
        self._pending: set[Link] = set()
        self._port: Port | None = None

    def invite(self, kind: str, *, over_pipe: bool) -> Invitation:
        """Raises EngineFailed if the port cannot be opened, or `cryptography` is missing."""
        ticket, token = self.tickets.issue(kind, over_pipe=over_pipe)
        invited = Invited(ticket=ticket.name, token=token)
        if not over_pipe:
            invited = Invited(
                ticket=ticket.name,
                token=token,
                address=self._settings.address,
                port=self._opened_port.number,
                credentials=self._authority.agent(ticket.name),
            )
        return Invitation(ticket=ticket.name, secret=encode_invitation(invited))

    def attach(self, name: str, pipe: Pipe) -> None:
        ticket = self.tickets.open.get(name)
        if ticket is None or not ticket.over_pipe:
            for fd in (pipe.reads, pipe.writes):
                os.close(fd)
            return
        codec = ControllerPipeCodec()
        link = Link(pipe.reads, pipe.writes, codec, largest=LARGEST_BEFORE_HELLO, name=name)
        self._await_hello(link, self._settings.pipe_hello_s, name)

    def close(self) -> None:
        """Admit no more agents."""
        if self._port is not None:
            self._port.close()
        for link in list(self._pending):
            link.close()
        self._pending.clear()
        for name in list(self.tickets.open):
            self.tickets.withdraw(name)

    @cached_property
    def _authority(self) -> Authority:
        try:
            from holdfast.runtime.fleet.authority import Authority
        except ImportError as error:
            raise EngineFailed(
                f"Agents that connect over TLS need the package cryptography ({error}): "
                f"pip install 'holdfast[cluster]'"
            ) from error
        return Authority()

    @property
    def _opened_port(self) -> Port:
        if self._port is None:
            context = tls_context(self._authority.controller(), is_server=True)
            on_connected = partial(self._on_connected, context)
            try:
                self._port = Port(self._settings, self._pending, on_connected, self._tasks)
            except OSError as error:
                raise EngineFailed(
                    f"Agents cannot connect to this machine: its address "
                    f"{self._settings.address} cannot be used: {error}"
                ) from error
        return self._port

    def _on_connected(self, context: ssl.SSLContext, sock: socket.socket, peer: str) -> None:
        no_delay(sock)
        fd, within_s = sock.detach(), self._settings.certificate_s
        codec = TlsCodec(context, is_server=True)
        link = Link(fd, fd, codec, largest=LARGEST_BEFORE_HELLO, name=peer)
        self._await_hello(link, self._settings.hello_s)
        # Whoever has no certificate takes the place of an agent for a short time only.
        self._fail_if(
            lambda: link in self._pending and not codec.peer,
            link,
            within_s,
            f"it showed no certificate within {within_s:g} s",
        )

    def _await_hello(self, link: Link, within_s: float, ticket: str = "") -> None:
        """Over a pipe, `ticket` is known already."""
        self._pending.add(link)
        link.begin(partial(self._on_hello, link, ticket), partial(self._on_closed, link))
        self._fail_if(
            lambda: link in self._pending,
            link,
            within_s,
            f"it did not introduce itself within {within_s:g} s",
        )

    def _fail_if(self, is_late: Callable[[], bool], link: Link, within_s: float, why: str) -> None:
        """End the connection if it is late then, also after what has arrived was read."""

        def judge() -> None:
            if is_late():
                link.drain()
                if is_late():
                    link.fail(why)

        self._tasks.later(within_s, judge)

    def _on_hello(self, link: Link, ticket_name: str, message: Message) -> None:
        hello = read_hello(message)
        # Over TLS, the certificate is of one ticket, too.
        expected = link.codec.peer if isinstance(link.codec, TlsCodec) else ticket_name
        if hello.ticket != expected:
            raise WireError(f"its ticket {shown(hello.ticket)} is not its own")
        ticket = self.tickets.redeem(hello.ticket, hello.token)
        if ticket is None:
            raise WireError("its ticket is unknown, or was used before")
        self._forget(link)
        if not (problem := refusal(hello)):
            self._admitted(link, ticket, hello)
            return
        link.hand_over(lambda _: None, lambda _: None)
        link.send(["refused", problem])
        link.finish()
        self._tasks.later(_READ_S, link.close)
        self._refused(ticket, problem)

    def _forget(self, link: Link) -> None:
        self._pending.discard(link)
        if self._port is not None:
            self._port.accept_more()

    def _on_closed(self, link: Link, reason: str) -> None:
        """A connection has shown no ticket; the reason is "" if the other end closed it."""
        self._forget(link)
        self.turned_away += 1
        if isinstance(link.codec, ControllerPipeCodec):
            # If the agent has closed its pipe itself, its job ends, and the engine says how.
            ticket = self.tickets.withdraw(link.name) if reason else None
            if ticket is not None:
                self._refused(ticket, f"an agent could not be reached over its pipe: {reason}")
        elif self.turned_away == 1:
            reason = reason or "it closed the connection before its hello"
            self._tell(
                f"A connection from {link.name} to the port of this run is not an agent's: "
                f"{reason}. It reached nothing. More of them are not shown"
            )


def refusal(hello: Hello) -> str:
    """Why an agent cannot be a node; "" if it can."""
    own_python = python_version()
    if hello.protocol != PROTOCOL or hello.version != VERSION:
        return (
            f"{hello.hostname} has holdfast {hello.version}, this machine {VERSION}: install "
            f"the same version on both"
        )
    if hello.python.split(".")[:2] != own_python.split(".")[:2]:
        return (
            f"{hello.hostname} has Python {hello.python}, this machine {own_python}: trials are "
            f"sent as pickles, which need the same minor version on both"
        )
    return ""


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


_INVITED_S = 120.0
_CONNECT_S = 45.0
# A machine that answers, but not at the port: the controller has ended.
_REFUSED_S = 3.0
_TRY_S = 10.0
_PAUSE_S = 0.5
_CONTROLLER = "the controller"
_REMEDY = (
    ". Pass controller_address=, a name or an address of the script's machine that the nodes can "
    "reach, and look whether a firewall closes its ports"
)
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class NotReached(RuntimeFault):
    """The agent cannot begin; the message says why."""


def read_invitation() -> Invited:
    """Read an invitation from stdin. Raises NotReached, OSError, and WireError for invalid
    data."""
    deadline = time.monotonic() + _INVITED_S
    head = _read_exactly(4, deadline)
    length = int.from_bytes(head, "big")
    if length > LARGEST_BEFORE_HELLO:
        raise NotReached("stdin has no invitation")
    return decode_invitation(head + _read_exactly(length, deadline))


def _read_exactly(size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        if not readable(_STDIN, max(0.0, deadline - time.monotonic())):
            raise NotReached(f"no invitation on stdin within {_INVITED_S:g} s")
        part = os.read(_STDIN, size - len(data))
        if not part:
            raise NotReached("stdin ended before the invitation")
        data += part
    return data


class StdioCall:
    """Takes stdin and stdout for the connection to the controller: what else this process or its
    children print goes to stderr, and they read nothing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._reads, self._writes = os.dup(_STDIN), os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), _STDIN)

    def link(self) -> Link:
        """Call it on the loop."""
        return Link(self._reads, self._writes, AgentPipeCodec(), name=_CONTROLLER)


class TlsCall:
    """Connects to the controller's port. `address` is this end's own."""

    def __init__(self, invited: Invited) -> None:
        """Raises NotReached."""
        assert invited.credentials is not None
        try:
            self._context = tls_context(invited.credentials, is_server=False)
        except (ssl.SSLError, ValueError) as error:
            raise NotReached(f"the invitation's certificate is invalid: {error}") from error
        self._socket = _connected(invited.address, invited.port)
        no_delay(self._socket)
        self.address: str = self._socket.getsockname()[0]

    def link(self) -> Link:
        """Call it on the loop."""
        fd = self._socket.detach()
        return Link(fd, fd, TlsCodec(self._context, is_server=False), name=_CONTROLLER)


def call(invited: Invited, own_address: str) -> StdioCall | TlsCall:
    """Reach the controller. Over a pipe, `own_address` is where other nodes can reach this one.
    Raises NotReached."""
    return StdioCall(own_address) if invited.credentials is None else TlsCall(invited)


def _connected(address: str, port: int) -> socket.socket:
    """Try for a while: a network may come up late, and the controller's queue may be full."""
    began = time.monotonic()
    while True:
        try:
            return socket.create_connection((address, port), timeout=_TRY_S)
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            within_s = _REFUSED_S if is_refused else _CONNECT_S
            if time.monotonic() - began > within_s:
                raise NotReached(
                    f"the controller at {address} port {port} cannot be reached within "
                    f"{within_s:g} s: {error}{'' if is_refused else _REMEDY}"
                ) from error
        time.sleep(_PAUSE_S)
