"""Both ends of a connection between controller and agent, over pipes and over TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.authority import Authority
from holdfast.runtime.fleet.handshake import AfterBanner, AgentBanner
from holdfast.runtime.fleet.link import Link, end_if_silent
from holdfast.runtime.fleet.tls import TlsCodec, tls_context
from holdfast.runtime.wire import Message
from tests.rig.workers.processes import PATIENCE_S, count_fds

pytestmark = pytest.mark.anyio

LARGE = ["large", bytes(range(256)) * 40_000]


class End:
    """One end, its messages and its end."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        link.begin(self.on_message, self.closed.set_result)

    def on_message(self, message: Message) -> None:
        if message == ["not of ours"]:
            raise WireError("not of ours")
        self.messages.put_nowait(message)

    async def message(self) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            return await self.messages.get()

    async def reason(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self.closed)


def over_pipes() -> tuple[End, End]:
    (ours_reads, theirs_writes), (theirs_reads, ours_writes) = os.pipe(), os.pipe()
    ours = Link(ours_reads, ours_writes, AfterBanner())
    return End(ours), End(Link(theirs_reads, theirs_writes, AgentBanner()))


def over_tls() -> tuple[End, End]:
    authority = Authority()
    ours, theirs = (sock.detach() for sock in socket.socketpair())
    controller = tls_context(authority.controller(), is_server=True)
    agent = tls_context(authority.agent("agent-1"), is_server=False)
    return (
        End(Link(ours, ours, TlsCodec(controller, is_server=True))),
        End(Link(theirs, theirs, TlsCodec(agent, is_server=False))),
    )


Ends = tuple[End, End]


@pytest.fixture(params=[over_pipes, over_tls])
async def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:  # type: ignore[misc]
    make: Callable[[], Ends] = request.param
    before = count_fds()
    made = make()
    yield made
    for end in made:
        end.link.close()
    assert count_fds() <= before


async def test_messages_arrive_in_order_both_ways(ends: Ends) -> None:
    for one, other in (ends, ends[::-1]):
        for number in range(100):
            one.link.send(["n", number])
        assert [(await other.message())[1] for _ in range(100)] == list(range(100))


async def test_what_does_not_fit_is_sent_when_there_is_room(ends: Ends) -> None:
    for one, other in (ends, ends[::-1]):
        one.link.send(LARGE)
        one.link.send(["after"])
        assert await other.message() == LARGE
        assert await other.message() == ["after"]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that are written to from now on."""
    found: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        found.append(fd)
        return write(fd, data)

    monkeypatch.setattr(os, "write", counted)
    return found


async def test_after_a_lone_message_the_next_is_written_at_once(
    ends: Ends, writes: list[int]
) -> None:
    ours, theirs = ends
    theirs.link.send(["hello"])
    await ours.message()
    for _ in range(2):
        writes.clear()
        ours.link.send(["alone"])
        assert len(writes) == 1
        assert await theirs.message() == ["alone"]
        await asyncio.sleep(0)  # the turn ends


async def test_the_messages_of_a_turn_are_written_together(ends: Ends, writes: list[int]) -> None:
    ours, theirs = ends
    theirs.link.send(["hello"])
    await ours.message()
    for expected in (2, 1):  # the first turn begins like a lone message
        writes.clear()
        for number in range(50):
            ours.link.send(["n", number])
        assert [(await theirs.message())[1] for _ in range(50)] == list(range(50))
        assert len(writes) == expected


async def test_answers_to_what_was_read_together_are_written_together(
    ends: Ends, writes: list[int]
) -> None:
    ours, theirs = ends
    theirs.link.send(["hello"])
    await ours.message()
    ours.link.hand_over(lambda message: ours.link.send(["re", *message]), ours.closed.set_result)
    for number in range(50):
        theirs.link.send([str(number)])
    theirs.link.flush()
    writes.clear()
    ours.link.drain()
    assert 1 <= len(writes) <= 2  # it may have read the first one alone
    assert [(await theirs.message())[1] for _ in range(50)] == [str(n) for n in range(50)]


async def test_an_end_that_finishes_has_all_its_messages_read(ends: Ends) -> None:
    ours, theirs = ends
    theirs.link.send(["hello"])
    await ours.message()
    for _ in range(20):
        ours.link.send(["unread", bytes(1000)])
    theirs.link.send(LARGE)
    theirs.link.finish()
    theirs.link.send(["too late"])
    assert await ours.message() == LARGE
    assert await ours.reason() == ""
    assert await theirs.reason() == ""


async def test_an_invalid_message_ends_the_connection_with_its_reason(ends: Ends) -> None:
    ours, theirs = ends
    theirs.link.send(["fine"])
    theirs.link.send(["not of ours"])
    theirs.link.send(["never read"])
    assert await ours.reason() == "not of ours"
    assert ours.messages.get_nowait() == ["fine"]
    assert ours.messages.empty()
    assert await theirs.reason() == ""


async def test_a_frame_that_is_too_large_ends_the_connection_before_it_has_arrived(
    ends: Ends,
) -> None:
    ours, theirs = ends
    ours.link.hand_over(ours.on_message, ours.closed.set_result, 1000)
    theirs.link.send(["x", bytes(2000)])
    assert "at most 1000 are allowed" in await ours.reason()


async def test_draining_reads_what_has_arrived_without_the_loop(ends: Ends) -> None:
    ours, theirs = ends
    theirs.link.send(["hello"])
    await ours.message()
    theirs.link.send(["arrived"])
    theirs.link.flush()
    ours.link.drain()
    assert ours.messages.get_nowait() == ["arrived"]


async def test_what_has_arrived_while_the_loop_was_busy_counts(ends: Ends) -> None:
    """The watcher is late itself: a false loss on an overloaded machine."""
    ours, theirs = ends
    theirs.link.send(["hello"])
    await ours.message()
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


async def test_bytes_that_are_no_frame_end_the_connection(ends: Ends) -> None:
    ours, theirs = ends
    theirs.link.codec.send(b"\x00\x00\x00\x02\xc1\xc1")
    theirs.link.flush()
    assert "not MessagePack" in await ours.reason()
