"""Tickets: each admits one agent, once. The invitation for its agent is one frame."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.settings import LARGEST_BEFORE_HELLO
from holdfast.runtime.fleet.tls import Credentials
from holdfast.runtime.wire import Decoder, encode

_TOKEN_BYTES = 32
_FIRST = "invitation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """What an agent reads in its invitation. Without `credentials` it talks over the pipe on which
    it got the invitation; otherwise it connects to `port` at `address`."""

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
    table: dict[str, Any] = {"ticket": invited.ticket, "token": invited.token}
    if (own := invited.credentials) is not None:
        table |= {
            "address": invited.address,
            "port": invited.port,
            "authority": own.authority,
            "certificate": own.certificate,
            "key": own.key,
        }
    return encode([_FIRST, table])


def decode_invitation(data: bytes) -> Invited:
    """Raises WireError."""
    match Decoder(LARGEST_BEFORE_HELLO).feed(data):
        case [[str(first), dict(table)]] if first == _FIRST:
            return _invited(table)
        case _:
            raise WireError("not an invitation: it is incomplete, or of another program")


def _invited(table: Mapping[str, Any]) -> Invited:
    match table:
        case {
            "ticket": str(ticket),
            "token": bytes(token),
            "address": str(address),
            "port": int(port),
            "authority": bytes(authority),
            "certificate": bytes(certificate),
            "key": bytes(key),
        }:
            own = Credentials(authority=authority, certificate=certificate, key=key)
            return Invited(ticket=ticket, token=token, address=address, port=port, credentials=own)
        case {"ticket": str(ticket), "token": bytes(token)}:
            return Invited(ticket=ticket, token=token)
        case _:
            raise WireError("not an invitation: it has no ticket")
