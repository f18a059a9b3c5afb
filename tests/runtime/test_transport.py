"""A worker's end of a connection, over real socket pairs."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime import transport as transport_module
from holdfast.runtime.errors import WireError
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message, encode


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    here, there = (Channel(end.detach()) for end in socket.socketpair())
    yield here, there
    here.close()
    there.close()


@pytest.fixture
def raw() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours.detach(), largest=1000)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_threads_that_send_at_once_do_not_mix_their_frames(pair: tuple[Channel, Channel]) -> None:
    here, there = pair
    messages: list[Message] = [[str(number), b"x" * 200_000] for number in range(8)]
    threads = [threading.Thread(target=here.send, args=(message,)) for message in messages]
    for thread in threads:
        thread.start()
    received = [there.receive() for _ in messages]
    assert sorted(received, key=str) == sorted(messages, key=str)
    for thread in threads:
        thread.join()


def test_a_thread_that_is_sending_at_the_close_writes_into_no_other_file(
    pair: tuple[Channel, Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next file that is opened gets the number of the descriptor."""
    here, _ = pair
    at_the_call, may_call = threading.Event(), threading.Event()

    def slow(fd: int, data: bytes) -> int:
        at_the_call.set()
        may_call.wait()
        return os.write(fd, data)

    monkeypatch.setattr(transport_module, "os", SlowWrites(slow))
    sender = threading.Thread(target=refused, args=(here,))
    closer = threading.Thread(target=here.close)
    sender.start()
    at_the_call.wait()
    closer.start()
    closer.join(0.1)  # it has to wait for the sender
    with open(tmp_path / "other", "w+b", buffering=0) as other:
        may_call.set()
        sender.join()
        closer.join()
        assert other.read() == b""
        assert (tmp_path / "other").stat().st_size == 0


def test_a_thread_that_sends_to_somebody_who_does_not_read_ends_at_the_close(
    pair: tuple[Channel, Channel],
) -> None:
    here, there = pair
    sender = threading.Thread(target=refused, args=(here, b"x" * 10_000_000))
    sender.start()
    assert transport_module.readable(there.fileno(), 60)  # it has begun, and cannot end
    here.close()
    sender.join()


class SlowWrites:
    """The module `os`, with another `write`."""

    def __init__(self, write: Callable[[int, bytes], int]) -> None:
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def refused(channel: Channel, content: bytes = b"") -> None:
    with pytest.raises(ConnectionError):
        channel.send(["to nobody", content])


def test_the_end_of_the_connection_is_none_after_what_came_before(
    pair: tuple[Channel, Channel],
) -> None:
    here, there = pair
    here.send(["last"])
    here.close()
    assert there.receive() == ["last"]
    assert there.receive() is None
    assert there.receive(timeout_s=0) is None


def test_a_message_that_does_not_come_in_time_is_a_timeout(pair: tuple[Channel, Channel]) -> None:
    here, there = pair
    with pytest.raises(TimeoutError, match=r"no message within 0\.01 s"):
        here.receive(timeout_s=0.01)
    there.send(["late"])
    assert here.receive(timeout_s=0.01) == ["late"]


def test_the_deadline_is_for_the_whole_message_not_for_each_piece(
    raw: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = raw
    now = 100.0
    waits: list[float] = []

    def trickle(_fd: int, timeout_s: float) -> bool:
        nonlocal now
        waits.append(timeout_s)
        now += 1.0
        other.sendall(b"\x00")
        return timeout_s > 0

    monkeypatch.setattr(transport_module, "readable", trickle)
    monkeypatch.setattr("time.monotonic", lambda: now)
    other.sendall(encode(["long", "x" * 100])[:50])
    with pytest.raises(TimeoutError):
        channel.receive(timeout_s=2.5)
    assert waits == [2.5, 1.5, 0.5, 0.0]


def test_a_frame_over_the_limit_is_refused(raw: tuple[Channel, socket.socket]) -> None:
    channel, other = raw
    other.sendall(encode(["long", "x" * 1000]))
    with pytest.raises(WireError, match="at most 1000 are allowed"):
        channel.receive()
