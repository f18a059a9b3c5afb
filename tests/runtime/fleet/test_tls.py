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


def test_what_is_sent_before_the_handshake_arrives_after_it() -> None:
    authority = Authority()
    ours, theirs = controller(authority), agent(authority)
    theirs.send(b"hello ")
    theirs.send(b"there")
    assert ours.peer == ""
    assert exchange(ours, theirs) == (b"hello there", b"")
    ours.send(b"welcome")
    assert exchange(ours, theirs) == (b"", b"welcome")
    assert ours.peer == "agent-1"
    assert not ours.has_more


def test_large_data_arrives_whole() -> None:
    authority = Authority()
    ours, theirs = controller(authority), agent(authority)
    large = bytes(range(256)) * 20_000
    ours.send(large)
    assert exchange(ours, theirs) == (b"", large)


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


def test_garbage_is_no_handshake() -> None:
    with pytest.raises(WireError, match="TLS"):
        controller(Authority()).receive(b"GET / HTTP/1.1\r\n\r\n")
