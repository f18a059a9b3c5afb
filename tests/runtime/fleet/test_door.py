"""The controller's port: a stranger reaches nothing, blocks nothing, and is mentioned once."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.runtime.connection import Link
from holdfast.runtime.fleet.authority import Authority
from holdfast.runtime.fleet.facts import LARGEST_BEFORE_HELLO, FleetSettings
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.fleet.handshake import decode_invitation
from holdfast.runtime.fleet.tls import Credentials, TlsCodec, tls_context
from holdfast.runtime.wire import encode
from tests.rig.nodes.fleets import FleetLog, Invitations, PlayedAgent, open_fleet, play
from tests.rig.workers.processes import PATIENCE_S, count_fds

pytestmark = pytest.mark.anyio

Played = tuple[Fleet, FleetLog, Invitations]


@asynccontextmanager
async def door(most: int = 1, **settings: float) -> AsyncIterator[Played]:
    """A fleet that waits for its agents, which a test plays."""
    times = FleetSettings(**{"grace_s": 0.2, "cause_s": 0.02, **settings})  # type: ignore[arg-type]
    async with open_fleet(Invitations(most), times) as (fleet, log, engine):
        opening = asyncio.ensure_future(fleet.open("no:entry", b""))
        await asyncio.sleep(0)
        yield fleet, log, engine
        opening.cancel()
        await asyncio.wait([opening])


def port_of(engine: Invitations) -> tuple[str, int]:
    invited = decode_invitation(engine.invitations[0].secret)
    return invited.address, invited.port


async def ends(sock: socket.socket) -> None:
    """Wait until the controller has closed this connection."""
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await loop.sock_recv(sock, 1 << 16):
                pass
        except ConnectionError:
            pass
    sock.close()


async def still_admits(played: Played) -> None:
    """The invited agent joins: nothing was blocked, and nobody has used its ticket."""
    _, log, engine = played
    agent = play(engine.invitations[0])
    assert await agent.join() == "played"
    await log.until("joined")
    agent.link.close()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", bytes(1 << 16), b"\x16\x03\x01\xff\xff" * 1000, b""]
)
async def test_garbage_reaches_nothing_and_is_mentioned_once(data: bytes) -> None:
    async with door() as played:
        fleet, log, engine = played
        for _ in range(5):
            sock = socket.create_connection(port_of(engine))
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            await ends(sock)
        assert len([text for text in log.told if "not an agent's" in text]) == 1
        assert "from 127.0.0.1" in log.told[0]
        assert fleet.turned_away == 5
        await still_admits(played)


async def test_a_peer_of_another_authority_reaches_nothing() -> None:
    async with door() as played:
        _, log, engine = played
        context = tls_context(Authority().agent("agent-1"), is_server=False)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        await greets_in_vain(engine, context)
        assert "TLS" in log.told[0]
        await still_admits(played)


async def greets_in_vain(engine: Invitations, context: ssl.SSLContext) -> None:
    """Greet with the invited agent's token."""
    invited = decode_invitation(engine.invitations[0].secret)
    agent = connected(engine, context, invited.ticket, invited.token)
    agent.greet()
    await agent.end()


def connected(
    engine: Invitations, context: ssl.SSLContext, ticket: str, token: bytes
) -> PlayedAgent:
    fd = socket.create_connection(port_of(engine)).detach()
    return PlayedAgent(Link(fd, fd, TlsCodec(context, is_server=False)), ticket, token)


async def test_a_token_admits_only_the_agent_to_which_it_was_given() -> None:
    """A second agent, with a certificate of the run, has got hold of the first one's token."""
    async with door(most=2) as played:
        _, log, engine = played
        first, second = (decode_invitation(one.secret) for one in engine.invitations)
        own: Credentials | None = second.credentials
        assert own is not None
        thief = connected(engine, tls_context(own, is_server=False), first.ticket, first.token)
        thief.greet()
        await thief.end()
        assert "is not its own" in log.told[0]
        await still_admits(played)


async def test_a_ticket_that_was_used_admits_nobody_a_second_time() -> None:
    async with door() as (_, log, engine):
        agent = play(engine.invitations[0])
        await agent.join()
        again = play(engine.invitations[0])
        again.greet()
        await again.end()
        assert "was used before" in log.told[0]
        assert not agent.closed.done()
        agent.link.close()


@pytest.mark.parametrize("size", [LARGEST_BEFORE_HELLO + 1, 1 << 31])
async def test_a_huge_frame_before_the_hello_ends_the_connection(size: int) -> None:
    async with door() as played:
        _, log, engine = played
        agent = play(engine.invitations[0])
        agent.link.codec.send(size.to_bytes(4, "big"))
        await agent.end()
        assert f"a frame of {size} bytes" in log.told[0]
        await still_admits(played)


@pytest.mark.parametrize("message", [["loaded", ""], ["hello", {}], ["launch", "w"]], ids=str)
async def test_another_message_before_the_hello_ends_the_connection(message: list[object]) -> None:
    async with door() as played:
        _, log, engine = played
        agent = play(engine.invitations[0])
        agent.link.codec.send(encode(message))
        await agent.end()
        assert len(log.told) == 1
        await still_admits(played)


async def test_a_slow_hello_ends_the_connection() -> None:
    async with door(hello_s=0.05) as (_, log, engine):
        silent = socket.create_connection(port_of(engine))
        slow = play(engine.invitations[0])
        await ends(silent)
        await slow.end()
        assert "did not introduce itself within 0.05 s" in log.told[0]


async def test_many_silent_connections_wait_outside_until_there_is_room() -> None:
    async with door(most_pending=3, hello_s=0.5) as played:
        fds = count_fds()
        socks = [socket.create_connection(port_of(played[2])) for _ in range(5)]
        await asyncio.sleep(0.02)
        assert count_fds() <= fds + 5 + 3
        await still_admits(played)
        for sock in socks:
            await ends(sock)


async def test_a_port_at_the_address_of_another_machine_is_an_error_at_once() -> None:
    settings = FleetSettings(address="192.0.2.77", grace_s=0.1)
    async with open_fleet(Invitations(), settings) as (fleet, _, _):
        with pytest.raises(Exception, match=r"its address 192\.0\.2\.77 cannot be used"):
            await fleet.open("no:entry", b"")
