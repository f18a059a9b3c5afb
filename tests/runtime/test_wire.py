"""Frames: however the bytes arrive, the same messages come out, and invalid bytes are refused."""

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.errors import WireError
from holdfast.runtime.wire import Decoder, encode

TEXT = st.text(max_size=9)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.builds(lambda name, rest: [name, *rest], TEXT, st.lists(VALUES, max_size=4)), max_size=5
)


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(MESSAGES, st.data())
def test_any_chunks_of_the_bytes_give_the_same_messages(
    messages: list[Any], data: st.DataObject
) -> None:
    stream = b"".join(map(encode, messages))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=9).map(sorted))
    decoder, received = Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == messages


@given(MESSAGES)
def test_one_byte_at_a_time_is_enough(messages: list[Any]) -> None:
    decoder = Decoder()
    stream = b"".join(map(encode, messages))
    assert [m for byte in stream for m in decoder.feed(bytes([byte]))] == messages


def test_a_frame_is_its_length_and_a_messagepack_list() -> None:
    assert encode(["echo", 1]) == b"\x00\x00\x00\x07\x92\xa4echo\x01"


@pytest.mark.parametrize("chunk", [1, 4, 5, 1000])
def test_a_frame_that_is_too_large_is_refused_when_its_length_is_known(chunk: int) -> None:
    decoder = Decoder(largest=10)
    assert decoder.feed(encode(["echo", 123])) == [["echo", 123]]
    data = encode(["echo", "12345"])
    pieces = [data[start : start + chunk] for start in range(0, len(data), chunk)]
    with pytest.raises(WireError, match="a frame of 12 bytes; at most 10 are allowed"):
        [decoder.feed(piece) for piece in pieces]


def test_a_length_of_four_gibibytes_allocates_nothing() -> None:
    with pytest.raises(WireError, match="a frame of 4294967295 bytes"):
        Decoder(largest=1 << 26).feed(b"\xff\xff\xff\xff")


NO_MESSAGES = [
    b"",
    b"\xc1",
    b"\x92\x01",
    msgpack.packb(["echo"]) + b"\x00",
    msgpack.packb({"echo": 1}),
    msgpack.packb("echo"),
    msgpack.packb([]),
    msgpack.packb([1, "echo"]),
    b"\x92\xa4echo\x81\x90\x01",  # a map whose key is a list
    b"\x92\xa4echo\xa1\xff",  # text that is no UTF-8
    b"\x91" * 100_000,  # nested deeper than any stack
]


@pytest.mark.parametrize("body", NO_MESSAGES, ids=lambda body: repr(body[:12]))
def test_what_is_not_a_named_list_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        Decoder().feed(frame(body))


@given(st.binary(max_size=64))
def test_random_bytes_are_messages_or_refused(data: bytes) -> None:
    try:
        messages = Decoder(largest=1 << 20).feed(data)
    except WireError:
        return
    assert all(isinstance(message[0], str) for message in messages)


def test_a_value_without_a_plain_form_is_the_senders_mistake() -> None:
    with pytest.raises(TypeError):
        encode(["echo", object()])
