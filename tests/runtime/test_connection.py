"""The contract of connections on the loop: plain ones between processes of a machine, and those
between controller and agent over pipes and TLS. All use real descriptors."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.runtime.connection import Connection, Link, end_if_silent
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.authority import Authority
from holdfast.runtime.fleet.handshake import AgentPipeCodec, ControllerPipeCodec
from holdfast.runtime.fleet.tls import TlsCodec, tls_context
from holdfast.runtime.wire import Decoder, Message, encode
from tests.rig.workers.processes import PATIENCE_S, count_fds

pytestmark = pytest.mark.anyio

LARGE = ["large", bytes(range(256)) * 40_000]
LARGEST = 1 << 24


class End:
    """One end, its messages and its end."""

    def __init__(self) -> None:
        self.link: Connection | Link
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_message(self, message: Message) -> None:
        if message == ["not of ours"]:
            raise WireError("not of ours")
        if message == ["close"]:
            self.link.close()
        self.messages.put_nowait(message)

    async def message(self) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            return await self.messages.get()

    async def reason(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self.closed)


class PlainEnd(End):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.link = Connection(sock, self.on_message, self.closed.set_result, largest=LARGEST)


class LinkEnd(End):
    link: Link

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        link.begin(self.on_message, self.closed.set_result)


def plain() -> tuple[PlainEnd, PlainEnd]:
    ours, theirs = socket.socketpair()
    return PlainEnd(ours), PlainEnd(theirs)


def over_pipes() -> tuple[LinkEnd, LinkEnd]:
    (ours_reads, theirs_writes), (theirs_reads, ours_writes) = os.pipe(), os.pipe()
    ours = Link(ours_reads, ours_writes, ControllerPipeCodec(), largest=LARGEST)
    return LinkEnd(ours), LinkEnd(
        Link(theirs_reads, theirs_writes, AgentPipeCodec(), largest=LARGEST)
    )


def over_tls() -> tuple[LinkEnd, LinkEnd]:
    authority = Authority()
    ours, theirs = (sock.detach() for sock in socket.socketpair())
    controller = TlsCodec(tls_context(authority.controller(), is_server=True), is_server=True)
    agent = TlsCodec(tls_context(authority.agent("agent-1"), is_server=False), is_server=False)
    return (
        LinkEnd(Link(ours, ours, controller, largest=LARGEST)),
        LinkEnd(Link(theirs, theirs, agent, largest=LARGEST)),
    )


Ends = tuple[End, End]
Links = tuple[LinkEnd, LinkEnd]


async def opened(make: Callable[[], tuple[End, End]]) -> AsyncIterator[tuple[End, End]]:
    before = count_fds()
    made = make()
    made[1].link.send(["hello"])  # over TLS, the handshake is over then
    assert await made[0].message() == ["hello"]
    yield made
    for end in made:
        end.link.close()
    assert count_fds() <= before


@pytest.fixture(params=[plain, over_pipes, over_tls])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    async for made in opened(request.param):
        yield made


@pytest.fixture(params=[over_pipes, over_tls])
async def links(request: pytest.FixtureRequest) -> AsyncIterator[Links]:
    async for made in opened(request.param):
        yield made  # type: ignore[misc]


# -- every connection ---------------------------------------------------------------------------


async def test_messages_arrive_in_order_both_ways(ends: Ends) -> None:
    for one, other in (ends, ends[::-1]):
        for number in range(100):
            one.link.send(["n", number])
        assert [(await other.message())[1] for _ in range(100)] == list(range(100))


async def test_what_does_not_fit_is_sent_when_there_is_room_and_in_order(ends: Ends) -> None:
    for one, other in (ends, ends[::-1]):
        one.link.send(LARGE)
        one.link.send(["after"])
        assert await other.message() == LARGE
        assert await other.message() == ["after"]


async def test_an_end_is_reported_once_after_what_came_before(ends: Ends) -> None:
    ours, theirs = ends
    theirs.link.send(["last"])
    if isinstance(theirs.link, Link):
        theirs.link.flush()
    theirs.link.close()
    assert await ours.reason() == ""
    assert ours.messages.get_nowait() == ["last"]
    assert not ours.link.is_open
    ours.link.send(["lost"])


async def test_closing_from_here_is_not_reported_to_ourselves(ends: Ends) -> None:
    ours, theirs = ends
    ours.link.close()
    ours.link.close()
    ours.link.drain()
    assert await theirs.reason() == ""
    assert not ours.closed.done()


async def test_a_message_that_the_receiver_refuses_ends_the_connection(ends: Ends) -> None:
    ours, theirs = ends
    for message in (["fine"], ["not of ours"], ["never read"]):
        theirs.link.send(message)
    assert await ours.reason() == "not of ours"
    assert ours.messages.get_nowait() == ["fine"]
    assert ours.messages.empty()
    assert await theirs.reason() == ""


async def test_nothing_is_delivered_after_the_receiver_closed(ends: Ends) -> None:
    ours, theirs = ends
    theirs.link.send(["close"])
    theirs.link.send(["after"])
    assert await ours.message() == ["close"]
    assert await theirs.reason() == ""
    assert ours.messages.empty()
    assert not ours.closed.done()


async def test_a_frame_that_is_too_large_ends_the_connection_before_it_has_arrived(
    ends: Ends,
) -> None:
    ours, theirs = ends
    theirs.link.send(["x", bytes(LARGEST)])
    assert f"at most {LARGEST} are allowed" in await ours.reason()


async def test_draining_reads_what_has_arrived_without_the_loop(ends: Ends) -> None:
    ours, theirs = ends
    for number in range(2):
        theirs.link.send(["arrived", number])
    if isinstance(theirs.link, Link):
        theirs.link.flush()
    ours.link.drain()
    assert [ours.messages.get_nowait()[1] for _ in range(2)] == [0, 1]
    theirs.link.close()
    ours.link.drain()
    assert ours.closed.result() == ""


# -- between processes of a machine -------------------------------------------------------------


class Bare:
    """A connection, its messages, and the bare socket at its other end."""

    def __init__(self) -> None:
        ours, self.other = socket.socketpair()
        self.ours = PlainEnd(ours)
        self.link = self.ours.link
        assert isinstance(self.link, Connection)


@pytest.fixture
async def bare() -> AsyncIterator[Bare]:
    ends = Bare()
    yield ends
    ends.link.close()
    ends.other.close()


async def test_an_end_that_left_something_unread_is_reported_by_who_has_seen_it(
    bare: Bare,
) -> None:
    bare.link.send(["go"])
    bare.other.sendall(encode(["raised"]))
    bare.other.close()
    assert isinstance(bare.link, Connection)
    bare.link.end()
    assert await bare.ours.message() == ["raised"]
    assert await bare.ours.reason() == ""


async def test_a_descriptor_travels_with_its_message(bare: Bare) -> None:
    assert isinstance(bare.link, Connection)
    here, there = os.pipe()
    bare.link.send(["take"], [there])
    os.close(there)
    assert await asyncio.to_thread(_take, bare.other, 1) == [["take"]]
    assert _leads_to(here)


async def test_one_that_must_wait_may_be_closed_by_the_sender_meanwhile(bare: Bare) -> None:
    assert isinstance(bare.link, Connection)
    here, there = os.pipe()
    bare.link.send(LARGE)
    bare.link.send(["take"], [there])
    os.close(there)
    taken = os.dup(here)  # gets the number that was just released
    assert taken == there
    os.close(taken)
    assert await asyncio.to_thread(_take, bare.other, 2) == [LARGE, ["take"]]
    assert _leads_to(here)


async def test_descriptors_that_wait_are_closed_with_the_connection(bare: Bare) -> None:
    assert isinstance(bare.link, Connection)
    bare.link.send(LARGE)
    before = count_fds()
    for _ in range(10):
        bare.link.send(["take"], [0])
    assert count_fds() == before + 10
    bare.link.close()
    assert count_fds() == before - 1


_taken: list[int] = []


def _take(sock: socket.socket, count: int) -> list[Message]:
    """This many messages; records the descriptors that come with them."""
    decoder = Decoder()
    messages: list[Message] = []
    while len(messages) < count:
        data, ancillary, _, _ = sock.recvmsg(1 << 18, socket.CMSG_SPACE(4))
        assert data
        messages += decoder.feed(data)
        for _, _, raw in ancillary:
            _taken.extend(array.array("i", raw))
    return messages


def _leads_to(reading_end: int) -> bool:
    """True if the one descriptor that was taken is the other end of this pipe; closes both."""
    (taken,) = _taken
    _taken.clear()
    try:
        os.write(taken, b"through")
        return os.read(reading_end, 100) == b"through"
    finally:
        os.close(taken)
        os.close(reading_end)


# -- between controller and agent ---------------------------------------------------------------


async def test_an_end_that_finishes_has_all_its_messages_read(links: Links) -> None:
    ours, theirs = links
    for _ in range(20):
        ours.link.send(["unread", bytes(1000)])
    theirs.link.send(LARGE)
    theirs.link.finish()
    theirs.link.send(["too late"])
    assert await ours.message() == LARGE
    assert await ours.reason() == ""
    assert await theirs.reason() == ""


async def test_there_is_room_again_when_the_other_end_has_read(links: Links) -> None:
    ours, theirs = links
    ours.link.send(LARGE)
    assert await ours.link.room()
    assert await theirs.message() == LARGE
    theirs.link.close()
    assert await ours.reason() == ""
    assert not await ours.link.room()


async def test_what_has_arrived_while_the_loop_was_busy_counts(links: Links) -> None:
    """The watcher is late itself: a false loss on an overloaded machine."""
    ours, theirs = links
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(end_if_silent(ours.link, 0.2, forgives=False))
        await asyncio.sleep(0)
        theirs.link.send(["beat"])
        theirs.link.flush()
        busy_until = time.monotonic() + 0.4
        while time.monotonic() < busy_until:
            pass
        assert await ours.message() == ["beat"]
        assert ours.link.is_open
        watching.cancel()
