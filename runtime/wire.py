"""Frames: a length (u32, big-endian) and a MessagePack list whose first item names the message.

This module uses no socket: it converts between bytes and messages.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgpack

from holdfast.names import shown
from holdfast.runtime.errors import WireError
from holdfast.schema import decode_row

T = TypeVar("T")
Message = list[Any]

_LENGTH = struct.Struct(">I")
LARGEST_FRAME = (1 << 32) - 1
# The largest frame from a worker (metrics, a traceback, a line of text). A larger one is a mistake
# or an attack, and the controller must not allocate memory for it.
LARGEST_FROM_WORKER = 1 << 26
# A list takes one byte of a frame and 56 of memory: 64 MiB of them would hold up the controller
# for 20 s. So those of a frame above this size are counted.
_LARGE = 1 << 20
_MOST_CONTAINERS = 1 << 20

_pack = msgpack.Packer(use_bin_type=True).pack


def encode(message: Message) -> bytes:
    """Raises WireError for a message of 4 GiB or more, TypeError for values that are not plain."""
    body: bytes = _pack(message)
    if len(body) > LARGEST_FRAME:
        raise WireError(f"a message of {len(body)} bytes does not fit into a frame (4 GiB)")
    return _LENGTH.pack(len(body)) + body


def checked(kind: type[T], row: Any) -> T:
    """A `kind` from a part of a message, the list of its fields (`holdfast.schema`). Raises
    WireError."""
    try:
        found: T = decode_row(kind, row)
    except ValueError as error:
        raise WireError(str(error)) from error
    return found


class Decoder:
    """Collects bytes and returns complete messages. `part` is a frame that has begun and is not
    complete."""

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self.largest = largest
        self.part = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes, in order.

        Raises WireError for a frame that is too long or is not a MessagePack list.
        """
        if not self.part and len(data) >= 4:
            # Usually exactly one frame arrives, which needs no copy.
            (length,) = _LENGTH.unpack_from(data)
            if len(data) == length + 4 and length <= self.largest:
                return [self._decode(data[4:])]
        self.part += data
        return self._drain()

    def _drain(self) -> list[Message]:
        messages: list[Message] = []
        buffer, start = self.part, 0
        while len(buffer) - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > self.largest:
                raise WireError(f"a frame of {length} bytes; at most {self.largest} are allowed")
            end = start + 4 + length
            if len(buffer) < end:
                break
            messages.append(self._decode(bytes(buffer[start + 4 : end])))
            start = end
        del buffer[:start]
        return messages

    def _decode(self, body: bytes) -> Message:
        try:
            if len(body) > _LARGE:
                message = msgpack.unpackb(body, strict_map_key=False, **_Counting().hooks)
            else:
                message = msgpack.unpackb(body, strict_map_key=False)
        except (ValueError, TypeError) as error:  # TypeError: a key that is a list or a map
            raise WireError(f"a frame of {len(body)} bytes is not MessagePack: {error}") from error
        if not isinstance(message, list) or not message or not isinstance(message[0], str):
            what = shown(message)
            raise WireError(f"a frame must be a list that begins with a name, not {what}")
        return message


class _Counting:
    """Counts the lists and maps of one frame."""

    def __init__(self) -> None:
        self._left = _MOST_CONTAINERS
        self.hooks = {"list_hook": self._count, "object_hook": self._count}

    def _count(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST_CONTAINERS:,} lists and maps")
        return value
