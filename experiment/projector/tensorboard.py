"""The event file of a trial as bytes for TensorBoard: scalars, and the config as hparams.

The few messages are written and read here field by field, in Protobuf's encoding
(protobuf.dev/programming-guides/encoding) with the numbers of TensorFlow's event.proto and
summary.proto and of the hparams plugin: the classes of tensorboardX and protobuf would cost each
run 60 ms of CPU for their import, and a row half as much again.

No `_hparams_/experiment` record is written. TensorBoard would use that of one arbitrary trial for
all of them, and show no columns for hparams that only other trials have. Without one it collects
columns, domains and metrics from every trial (backend_context.py of its hparams plugin).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from holdfast.trial.values import flatten, unwrap_scalar

PREFIX = "ray/tune/"
# Ray leaves these out as well: the step itself, and values that are not curves.
UNCHARTED = frozenset({"config", "pid", "timestamp", "time_total_s", "training_iteration"})
_UNSAFE = re.compile(r"[^-/\w.]")
_LENGTH, _CRC, _SINGLE = struct.Struct("<Q"), struct.Struct("<I"), struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
# Protobuf's wire types.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# A field's number and wire type, in one byte. Of an Event:
_WALL_TIME, _STEP, _FILE_VERSION = 1 << 3 | _FIXED64, 2 << 3 | _VARINT, 3 << 3 | _BYTES
_SUMMARY, _SESSION_LOG = 5 << 3 | _BYTES, 7 << 3 | _BYTES
# Of a Summary, and of its Value:
_VALUE, _TAG, _SIMPLE_VALUE = 1 << 3 | _BYTES, 1 << 3 | _BYTES, 2 << 3 | _FIXED32
_METADATA = 9 << 3 | _BYTES


def opening(wall_time: float) -> bytes:
    """The first records of every event file.

    After a roll-back, the session log makes a running TensorBoard forget the steps of the file
    that this one replaces.
    """
    version = _text(_FILE_VERSION, "brain.Event:2")
    restart = _message(_SESSION_LOG, bytes((1 << 3 | _VARINT, 1)))
    return _event(wall_time, version) + _event(wall_time, restart)


def scalars(row: Mapping[str, Any], step: int, wall_time: float) -> bytes:
    """One event with all numbers of the row. Booleans, text and lists are left out."""
    values = [
        _value_head(key) + _single(number)
        for key, number in _numbers({k: row[k] for k in row if k not in UNCHARTED})
    ]
    if not values:
        return b""
    number = bytes((_STEP,)) + _varint(step)
    return _event(wall_time, number + _message(_SUMMARY, b"".join(values)))


def session_start(config: Mapping[str, Any], wall_time: float) -> bytes:
    """The trial's flattened config as its hparams; `config` is that of `shown_config`."""
    info = b"".join(
        _message(1 << 3 | _BYTES, _text(1 << 3 | _BYTES, key) + _hparam(value))
        for key, value in flatten(config).items()
        if value is not None
    )
    return _hparams_record("session_start_info", wall_time, 3, info + _double(5, wall_time))


def session_end(*, succeeded: bool, wall_time: float) -> bytes:
    """The record that the trial is over, TERMINATED or ERROR."""
    status = bytes((1 << 3 | _VARINT, 1 if succeeded else 2))
    return _hparams_record("session_end_info", wall_time, 4, status + _double(2, wall_time))


def charted_steps(data: bytes) -> list[int]:
    """The step of each event with scalars, in file order.

    Raises ValueError if a record is cut off or its checksum is wrong.
    """
    steps, offset = list[int](), 0
    while offset < len(data):
        content, offset = _framed(data, offset)
        step, has_scalars = _read_event(content)
        if has_scalars:
            steps.append(step)
    return steps


def end_of_step(data: bytes, step: int) -> int:
    """The number of bytes before the first event of a later step. Raises ValueError."""
    offset = 0
    while offset < len(data):
        content, end = _framed(data, offset)
        if _read_event(content)[0] > step:
            return offset
        offset = end
    return offset


def _read_event(content: bytes) -> tuple[int, bool]:
    """The event's step, and true if it has scalars. Raises ValueError."""
    step, has_scalars = 0, False
    for key, value in _fields(content):
        if key == _STEP:
            step = value
        elif key == _SUMMARY:
            has_scalars |= any(
                inner == _SIMPLE_VALUE
                for one, each in _fields(value)
                if one == _VALUE
                for inner, _ in _fields(each)
            )
    return step, has_scalars


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Each field's key, and its content: a number, or the bytes of another wire type. Raises
    ValueError."""
    offset = 0
    while offset < len(message):
        key, offset = _read_varint(message, offset)
        match key & 7:
            case 0:
                value, offset = _read_varint(message, offset)
                yield key, value
                continue
            case 2:
                length, offset = _read_varint(message, offset)
            case 1:
                length = 8
            case 5:
                length = 4
            case kind:
                raise ValueError(f"a field has the unknown wire type {kind}")
        if offset + length > len(message):
            raise ValueError("a field is cut off")
        yield key, message[offset : offset + length]
        offset += length


def _read_varint(message: bytes, offset: int) -> tuple[int, int]:
    """A whole number, and the offset behind it. Raises ValueError."""
    number = shift = 0
    while offset < len(message) and shift < 70:
        byte = message[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, offset
        shift += 7
    raise ValueError("a number is cut off")


def _event(wall_time: float, content: bytes) -> bytes:
    return _framed_record(_double(1, wall_time) + content)


def _message(key: int, content: bytes) -> bytes:
    return b"".join((bytes((key,)), _varint(len(content)), content))


def _text(key: int, text: str) -> bytes:
    return _message(key, text.encode("utf-8", "replace"))


def _double(number: int, value: float) -> bytes:
    return bytes((number << 3 | _FIXED64,)) + _DOUBLE.pack(value)


def _framed_record(data: bytes) -> bytes:
    """The TFRecord framing: length, its checksum, data, its checksum."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CRC.pack(_masked(length)), data, _CRC.pack(_masked(data))))


@lru_cache(maxsize=65536)
def _value_head(key: str) -> bytes:
    """A `Summary.Value` of this tag, up to the number: four bytes are to follow."""
    content = _text(_TAG, _tag(key)) + bytes((_SIMPLE_VALUE,))
    return bytes((_VALUE,)) + _varint(len(content) + _SINGLE.size) + content


def _single(number: float) -> bytes:
    try:
        return _SINGLE.pack(number)
    except OverflowError:
        return _SINGLE.pack(math.inf if number > 0 else -math.inf)


def _varint(number: int) -> bytes:
    """Protobuf's encoding of a whole number that is not negative: seven bits in each byte."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _framed(data: bytes, offset: int) -> tuple[bytes, int]:
    """The content of the record at `offset`, and the offset of the next one. Raises ValueError."""
    head = offset + _LENGTH.size
    start = head + _CRC.size
    length = data[offset:head]
    if len(data) < start or data[head:start] != _CRC.pack(_masked(length)):
        raise ValueError(f"no record begins at offset {offset}")
    end = start + _LENGTH.unpack(length)[0]
    content = data[start:end]
    if data[end : end + _CRC.size] != _CRC.pack(_masked(content)):
        raise ValueError(f"the record at offset {offset} is cut off or damaged")
    return content, end + _CRC.size


def _masked(data: bytes) -> int:
    crc = _crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class Checksum:
    """CRC-32C (RFC 3720, appendix B.4) by a table, and by the package after so many bytes.

    The package's import costs 14 ms of CPU, as much as the table takes for these bytes.
    """

    _BY_TABLE = 150_000

    def __init__(self) -> None:
        self._left = self._BY_TABLE
        self._perform: Callable[[bytes], int] = _crc32c_by_table

    def __call__(self, data: bytes) -> int:
        if self._left > 0:
            self._left -= len(data)
            if self._left <= 0:
                self._perform = self._package()
        return self._perform(data)

    def _package(self) -> Callable[[bytes], int]:
        try:
            from crc32c import crc32c
        except ImportError:
            return _crc32c_by_table
        return crc32c


def _crc32c_by_table(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@cache
def _crc_table() -> list[int]:
    table = []
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_crc32c = Checksum()


def _hparams_record(tag: str, wall_time: float, number: int, content: bytes) -> bytes:
    """A summary whose metadata has, for the hparams plugin, field `number` with this content."""
    data = _message(number << 3 | _BYTES, content)
    plugin = _text(1 << 3 | _BYTES, "hparams") + _message(2 << 3 | _BYTES, data)
    metadata = _message(_METADATA, _message(1 << 3 | _BYTES, plugin))
    value = _text(_TAG, f"_hparams_/{tag}") + metadata
    return _event(wall_time, _message(_SUMMARY, _message(_VALUE, value)))


def _hparam(value: Any) -> bytes:
    """The value of an entry of the map of hparams: a google.protobuf.Value."""
    if isinstance(value, bool):
        kind = bytes((4 << 3 | _VARINT, value))
    elif isinstance(value, (int, float)) and math.isfinite(value):
        kind = _double(2, value)
    else:  # TensorBoard's hparams page fails on numbers that JSON lacks
        kind = _text(3 << 3 | _BYTES, str(value))
    return _message(2 << 3 | _BYTES, kind)


def _numbers(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        kind = type(value)
        if kind is float or kind is int:
            yield path + key, value
        elif kind is str or kind is bool or value is None:
            continue
        elif isinstance(value, Mapping):
            yield from _numbers(value, f"{path}{key}/")
        elif not isinstance(value, (bool, str)):
            number = unwrap_scalar(value)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                yield path + key, number


@lru_cache(maxsize=65536)
def _tag(key: str) -> str:
    return _UNSAFE.sub("_", PREFIX + key)
