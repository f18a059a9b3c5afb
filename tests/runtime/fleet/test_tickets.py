"""Tickets admit one agent, once; invitations are read back whole or refused."""

from __future__ import annotations

import pytest

from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.handshake import (
    Invited,
    Tickets,
    decode_invitation,
    encode_invitation,
)
from holdfast.runtime.fleet.tls import Credentials
from holdfast.runtime.wire import encode

CREDENTIALS = Credentials(authority=b"a", certificate=b"c", key=b"k")
INVITED = Invited(ticket="t", token=b"s", address="10.0.0.1", port=5, credentials=CREDENTIALS)


def test_a_ticket_admits_once() -> None:
    tickets = Tickets()
    ticket, token = tickets.issue("node", over_pipe=False)
    assert tickets.redeem(ticket.name, token) == ticket
    assert tickets.redeem(ticket.name, token) is None
    assert not tickets.open


def test_a_token_admits_with_its_own_ticket_only() -> None:
    tickets = Tickets()
    (first, token), (second, _) = (tickets.issue("node", over_pipe=True) for _ in range(2))
    assert tickets.redeem(second.name, token) is None
    assert tickets.redeem("another", token) is None
    assert tickets.redeem(first.name, token) == first


def test_a_ticket_that_was_withdrawn_admits_nobody() -> None:
    tickets = Tickets()
    ticket, token = tickets.issue("node", over_pipe=True)
    assert tickets.withdraw(ticket.name) == ticket
    assert tickets.redeem(ticket.name, token) is None


@pytest.mark.parametrize("invited", [INVITED, Invited(ticket="t", token=b"s")])
def test_an_invitation_is_read_back(invited: Invited) -> None:
    assert decode_invitation(encode_invitation(invited)) == invited


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode_invitation(INVITED)[:-1],
        encode(["hello", {}]),
        encode(["invitation", {"ticket": "t"}]),
        encode(["invitation", {"ticket": "t", "token": "text"}]),
        encode(["invitation", []]),
        b"Welcome to n1\n",
    ],
)
def test_what_is_no_invitation_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_invitation(data)
