"""The event file of a trial as bytes for TensorBoard: scalars, and the config as hparams.

Only the message classes and the checksum of tensorboardX are used: its SummaryWriter starts a
thread per trial and calls fsync.

No `_hparams_/experiment` record is written. TensorBoard would use that of one arbitrary trial for
all of them, and show no columns for hparams that only other trials have. Without one it collects
columns, domains and metrics from every trial (backend_context.py of its hparams plugin).
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

from holdfast.trial.values import flatten, unwrap_scalar

PREFIX = "ray/tune/"
# Ray leaves these out as well: the step itself, and values that are not curves.
UNCHARTED = frozenset({"config", "pid", "timestamp", "time_total_s", "training_iteration"})
_UNSAFE = re.compile(r"[^-/\w.]")
_LENGTH, _CRC, _SINGLE = struct.Struct("<Q"), struct.Struct("<I"), struct.Struct("<f")
# Field number and wire type, as event.proto and summary.proto have them.
_WALL_TIME, _WALL_TIME_KEY = struct.Struct("<Bd"), 1 << 3 | 1
_STEP_KEY, _SUMMARY_KEY = bytes((2 << 3,)), bytes((5 << 3 | 2,))
_VALUE_KEY, _TAG_KEY, _NUMBER_KEY = (
    bytes((1 << 3 | 2,)),
    bytes((1 << 3 | 2,)),
    bytes((2 << 3 | 5,)),
)


def available() -> bool:
    """Whether tensorboardX is installed; it is not imported."""
    return "tensorboardX" in sys.modules or find_spec("tensorboardX") is not None


def opening(wall_time: float) -> bytes:
    """The first records of every event file.

    After a roll-back, the session log makes a running TensorBoard forget the steps of the file
    that this one replaces.
    """
    lib = _library().event
    version = lib.Event(wall_time=wall_time, file_version="brain.Event:2")
    restart = lib.Event(wall_time=wall_time, session_log=lib.SessionLog(status=1))
    return _record(version) + _record(restart)


def scalars(row: Mapping[str, Any], step: int, wall_time: float) -> bytes:
    """One event with all numbers of the row. Booleans, text and lists are left out.

    Written here field by field: with the message classes, this was a third of what a row costs.
    """
    values = [
        _value_head(key) + _single(number)
        for key, number in _numbers({k: row[k] for k in row if k not in UNCHARTED})
    ]
    if not values:
        return b""
    summary = b"".join(values)
    when = _WALL_TIME.pack(_WALL_TIME_KEY, wall_time)
    return _framed_record(
        b"".join((when, _STEP_KEY, _varint(step), _SUMMARY_KEY, _varint(len(summary)), summary))
    )


def session_start(config: Mapping[str, Any], wall_time: float) -> bytes:
    """The trial's flattened config as its hparams; `config` is that of `shown_config`."""
    info = _library().hparams.SessionStartInfo(start_time_secs=wall_time)
    for key, value in flatten(config).items():
        if value is not None:
            _set_hparam(info.hparams[key], value)
    return _hparams_record("session_start_info", wall_time, session_start_info=info)


def session_end(*, succeeded: bool, wall_time: float) -> bytes:
    """The record that the trial is over, TERMINATED or ERROR."""
    status = 1 if succeeded else 2
    info = _library().hparams.SessionEndInfo(status=status, end_time_secs=wall_time)
    return _hparams_record("session_end_info", wall_time, session_end_info=info)


def charted_steps(data: bytes) -> list[int]:
    """The step of each event with scalars, in file order.

    Raises ValueError if a record is cut off or its checksum is wrong.
    """
    lib, steps, offset = _library(), list[int](), 0
    while offset < len(data):
        content, offset = _framed(data, offset)
        event = lib.event.Event.FromString(content)
        if any(value.WhichOneof("value") == "simple_value" for value in event.summary.value):
            steps.append(event.step)
    return steps


def end_of_step(data: bytes, step: int) -> int:
    """The number of bytes before the first event of a later step. Raises ValueError."""
    lib, offset = _library(), 0
    while offset < len(data):
        content, end = _framed(data, offset)
        if lib.event.Event.FromString(content).step > step:
            return offset
        offset = end
    return offset


class _Library(NamedTuple):
    """The modules of tensorboardX with its message classes and its checksum."""

    event: Any
    summary: Any
    hparams: Any
    crc: Any


@cache
def _library() -> _Library:
    return _Library(
        *_parts("proto.event_pb2", "proto.summary_pb2", "proto.plugin_hparams_pb2", "crc32c")
    )


def _parts(*names: str) -> list[ModuleType]:
    """Import modules of tensorboardX without running its `__init__`.

    That imports NumPy, boto3 if it is installed, and more: 0.40 s of CPU in each run, instead of
    0.05. An empty package of the same path replaces it during the import.
    """
    spec = find_spec("tensorboardX")
    if "tensorboardX" in sys.modules or spec is None:
        return [import_module(f"tensorboardX.{name}") for name in names]
    bare = ModuleType("tensorboardX")
    bare.__path__ = list(spec.submodule_search_locations or ())
    sys.modules["tensorboardX"] = bare
    try:
        return [import_module(f"tensorboardX.{name}") for name in names]
    finally:
        del sys.modules["tensorboardX"]


def _record(event: Any) -> bytes:
    return _framed_record(event.SerializeToString())


def _framed_record(data: bytes) -> bytes:
    """The TFRecord framing: length, its checksum, data, its checksum."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CRC.pack(_masked(length)), data, _CRC.pack(_masked(data))))


@lru_cache(maxsize=65536)
def _value_head(key: str) -> bytes:
    """A `Summary.Value` of this tag, up to the number: four bytes are to follow."""
    tag = _tag(key).encode()
    content = b"".join((_TAG_KEY, _varint(len(tag)), tag, _NUMBER_KEY))
    return _VALUE_KEY + _varint(len(content) + _SINGLE.size) + content


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
    crc: int = _library().crc.crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _hparams_record(tag: str, wall_time: float, **content: Any) -> bytes:
    lib = _library()
    data = lib.hparams.HParamsPluginData(version=0, **content).SerializeToString()
    kind, metadata = lib.summary.Summary, lib.summary.SummaryMetadata
    plugin = metadata.PluginData(plugin_name="hparams", content=data)
    value = kind.Value(tag=f"_hparams_/{tag}", metadata=metadata(plugin_data=plugin))
    return _record(lib.event.Event(wall_time=wall_time, summary=kind(value=[value])))


def _set_hparam(field: Any, value: Any) -> None:
    if isinstance(value, bool):
        field.bool_value = value
    elif isinstance(value, (int, float)) and math.isfinite(value):
        field.number_value = value
    else:  # TensorBoard's hparams page fails on numbers that JSON lacks
        field.string_value = str(value)


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
