"""TLS without a socket: both ends show a certificate of the run's own authority."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.authority import Authority
from holdfast.runtime.fleet.tls import TlsCodec, tls_context


def controller(authority: Authority) -> TlsCodec:
    return TlsCodec(tls_context(authority.controller(), is_server=True), is_server=True)


def agent(authority: Authority, ticket: str = "agent-1") -> TlsCodec:
    return TlsCodec(tls_context(authority.agent(ticket), is_server=False), is_server=False)


def exchange(one: TlsCodec, other: TlsCodec) -> tuple[bytes, bytes]:
    """Carry bytes until there are none left. Returns what each end has received."""
    got_one, got_other = b"", b""
    while True:
        there, back = one.take(), other.take()
        if not there and not back:
            return got_one, got_other
        got_other += other.receive(there) if there else b""
        got_one += one.receive(back) if back else b""


def stranger(_: Authority) -> TlsCodec:
    return agent(Authority())


def nameless(authority: Authority) -> TlsCodec:
    """It trusts the controller and shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.agent("x").authority.decode())
    return TlsCodec(context, is_server=False)


def trusting_stranger(_: Authority) -> TlsCodec:
    """It has the certificate of another run, and takes any controller."""
    context = tls_context(Authority().agent("x"), is_server=False)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return TlsCodec(context, is_server=False)


def outdated(authority: Authority) -> TlsCodec:
    context = tls_context(authority.agent("x"), is_server=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return TlsCodec(context, is_server=False)


@pytest.mark.parametrize("make", [stranger, nameless, trusting_stranger, outdated])
def test_a_peer_without_a_certificate_of_the_run_is_refused(
    make: Callable[[Authority], TlsCodec],
) -> None:
    authority = Authority()
    theirs = make(authority)
    theirs.send(b"let me in")
    with pytest.raises(WireError, match="TLS"):
        exchange(controller(authority), theirs)


def test_an_agent_takes_no_agent_for_the_controller() -> None:
    authority = Authority()
    context = tls_context(authority.agent("agent-2"), is_server=True)
    with pytest.raises(WireError, match="TLS"):
        exchange(TlsCodec(context, is_server=True), agent(authority))
