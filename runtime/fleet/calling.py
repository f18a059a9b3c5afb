"""How an agent reaches the controller: its invitation, then TLS or the pipe of its stdio."""

from __future__ import annotations

import os
import socket
import ssl
import time

from holdfast.runtime.errors import RuntimeFault
from holdfast.runtime.fleet.banner import AgentBanner
from holdfast.runtime.fleet.door import no_delay
from holdfast.runtime.fleet.link import Link
from holdfast.runtime.fleet.settings import LARGEST_BEFORE_HELLO
from holdfast.runtime.fleet.tickets import Invited, decode_invitation
from holdfast.runtime.fleet.tls import TlsCodec, tls_context
from holdfast.runtime.transport import readable

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


def read_invitation(place: str) -> Invited:
    """Read an invitation from a file, or from stdin for "-". Raises NotReached, OSError, and
    WireError for invalid data."""
    if place != "-":
        with open(place, "rb") as file:
            return decode_invitation(file.read(LARGEST_BEFORE_HELLO))
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
        return Link(self._reads, self._writes, AgentBanner(), name=_CONTROLLER)


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
