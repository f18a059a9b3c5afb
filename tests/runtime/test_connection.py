"""The controller's end of a connection, over real socket pairs and a real loop."""

import array
import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from holdfast.runtime.connection import Connection
from holdfast.runtime.errors import WireError
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Decoder, Message, encode
from tests.rig.workers.processes import PATIENCE_S, count_fds

pytestmark = pytest.mark.anyio

LARGE = ["large", bytes(range(256)) * 40_000]


class Ends:
    """A connection, its messages, and the bare socket at its other end."""

    def __init__(self) -> None:
        ours, self.other = socket.socketpair()
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.link = Connection(ours, self.on_message, self.closed.set_result, largest=1 << 26)

    def on_message(self, message: Message) -> None:
        if message == ["close"]:
            self.link.close()
        elif message == ["no message of ours"]:
            raise WireError("not of ours")
        self.messages.put_nowait(message)

    async def message(self) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            return await self.messages.get()

    async def reason(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self.closed)

    def write(self, *messages: Message) -> None:
        self.other.sendall(b"".join(map(encode, messages)))

    async def read(self) -> Message | None:
        """The next message at the other end, read in a thread as a worker would."""
        channel = Channel(self.other.fileno())
        return await asyncio.to_thread(channel.receive)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    yield ends
    ends.link.close()
    ends.other.close()


async def test_messages_arrive_by_callback_in_order(ends: Ends) -> None:
    ends.write(["a", 1], ["b", 2], ["c", 3])
    assert [await ends.message() for _ in range(3)] == [["a", 1], ["b", 2], ["c", 3]]


async def test_a_message_that_fits_is_sent_at_once(ends: Ends) -> None:
    ends.link.send(["now"])
    ends.other.setblocking(False)
    assert ends.other.recv(100) == encode(["now"])


async def test_an_end_that_left_something_unread_is_reported_by_who_has_seen_it(
    ends: Ends,
) -> None:
    ends.link.send(["go"])
    ends.write(["raised"])
    ends.other.close()
    ends.link.end()
    assert await ends.message() == ["raised"]
    assert await ends.reason() == ""


async def test_what_does_not_fit_is_sent_when_there_is_room_and_in_order(ends: Ends) -> None:
    ends.link.send(LARGE)
    ends.link.send(["after"])
    channel = Channel(ends.other.fileno())
    assert await asyncio.to_thread(channel.receive) == LARGE
    assert await asyncio.to_thread(channel.receive) == ["after"]


async def test_a_large_message_is_received_whole(ends: Ends) -> None:
    sending = asyncio.to_thread(ends.write, LARGE)
    _, received = await asyncio.gather(sending, ends.message())
    assert received == LARGE


async def test_the_end_of_the_connection_is_reported_once_after_what_came_before(
    ends: Ends,
) -> None:
    ends.write(["last"])
    ends.other.close()
    assert await ends.reason() == ""
    assert ends.messages.get_nowait() == ["last"]
    assert not ends.link.is_open


async def test_sending_to_a_closed_end_does_nothing(ends: Ends) -> None:
    ends.other.close()
    ends.link.send(["lost"])
    assert await ends.reason() == ""
    ends.link.send(["lost too"])


async def test_an_end_that_closes_in_the_middle_of_a_large_message_is_reported(ends: Ends) -> None:
    ends.link.send(LARGE)
    ends.other.close()
    assert await ends.reason() == ""


async def test_rubbish_ends_the_connection_and_says_why(ends: Ends) -> None:
    ends.write(["good"])
    assert await ends.message() == ["good"]
    ends.other.sendall(b"\x00\x00\x00\x01\xc1")
    assert "is not MessagePack" in await ends.reason()
    assert not ends.link.is_open


async def test_a_frame_that_the_receiver_refuses_ends_the_connection(ends: Ends) -> None:
    ends.write(["no message of ours"], ["after"])
    assert await ends.reason() == "not of ours"
    assert ends.messages.empty()


async def test_nothing_is_delivered_after_the_receiver_closed(ends: Ends) -> None:
    ends.write(["close"], ["after"])
    assert await ends.message() == ["close"]
    assert ends.messages.empty()
    assert not ends.closed.done()


async def test_draining_takes_in_what_has_arrived_without_the_loop(ends: Ends) -> None:
    ends.write(["one"], ["two"])
    ends.link.drain()
    assert [ends.messages.get_nowait() for _ in range(2)] == [["one"], ["two"]]


async def test_draining_an_ended_connection_tells_its_end(ends: Ends) -> None:
    ends.write(["last"])
    ends.other.close()
    ends.link.drain()
    assert ends.messages.get_nowait() == ["last"]
    assert ends.closed.result() == ""


async def test_closing_from_here_is_not_reported_to_ourselves(ends: Ends) -> None:
    ends.link.close()
    ends.link.close()
    ends.link.drain()
    assert ends.other.recv(1) == b""
    assert not ends.closed.done()


# -- descriptors --------------------------------------------------------------------------------


async def test_a_descriptor_travels_with_its_message(ends: Ends) -> None:
    here, there = os.pipe()
    ends.link.send(["take"], [there])
    os.close(there)
    assert await asyncio.to_thread(_take, ends.other, 1) == [["take"]]
    assert _leads_to(here)


async def test_one_that_must_wait_may_be_closed_by_the_sender_meanwhile(ends: Ends) -> None:
    here, there = os.pipe()
    ends.link.send(LARGE)
    ends.link.send(["take"], [there])
    os.close(there)
    taken = os.dup(here)  # gets the number that was just released
    assert taken == there
    os.close(taken)
    assert await asyncio.to_thread(_take, ends.other, 2) == [LARGE, ["take"]]
    assert _leads_to(here)


async def test_descriptors_that_wait_are_closed_with_the_link(ends: Ends) -> None:
    ends.link.send(LARGE)
    before = count_fds()
    for _ in range(10):
        ends.link.send(["take"], [0])
    assert count_fds() == before + 10
    ends.link.close()
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
    """Whether the one descriptor that was taken is the other end of this pipe; closes both."""
    (taken,) = _taken
    _taken.clear()
    try:
        os.write(taken, b"through")
        return os.read(reading_end, 100) == b"through"
    finally:
        os.close(taken)
        os.close(reading_end)
