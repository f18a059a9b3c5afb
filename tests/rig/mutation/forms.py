"""The formats of an experiment's files: as a tree of plain values, and back with valid checksums.

This shares no code with holdfast: it follows docs/layout.md.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

JOURNAL_MAGIC = b"HFJRNL\x00\x01"
TUNER_MAGIC = b"HFTUNR\x00\x02"
_FRAME = struct.Struct("<II")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """`decode` returns a tree of dicts, lists and plain values; `encode` makes the file from
    it."""

    name: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]


def form_of(path: str) -> Form | None:
    """The form of the file with this path inside an experiment; None for one without a tree."""
    name = path.rpartition("/")[2]
    if name.endswith(".log") and "/journal/" in f"/{path}":
        return JOURNAL
    if name.startswith("experiment_state-"):
        return SNAPSHOT
    if name in ("tuner.pkl", "trainer.pkl"):
        return TUNER
    if name.endswith(".msgpack"):
        return MSGPACK
    if name == "result.json":
        return LINES
    if name == ".stored.json":
        return INDEX
    if "/.epochs/" in f"/{path}":
        return CLAIM
    if name.startswith("tracker-"):
        return CURSOR
    return JSON if name.endswith(".json") else None


def journal_records(data: bytes) -> tuple[list[bytes], bool]:
    """The payloads of a segment, and whether it has nothing else."""
    payloads: list[bytes] = []
    if not data.startswith(JOURNAL_MAGIC):
        return payloads, False
    offset = len(JOURNAL_MAGIC)
    while offset + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, offset)
        payload = data[offset + _FRAME.size : offset + _FRAME.size + length]
        if len(payload) < length or zlib.crc32(payload) != crc or not length:
            break
        payloads.append(payload)
        offset += _FRAME.size + length
    return payloads, offset == len(data)


def _decode_journal(data: bytes) -> Any:
    payloads, _ = journal_records(data)
    return [msgpack.unpackb(payload, strict_map_key=False) for payload in payloads]


def _encode_journal(tree: Any) -> bytes:
    data = JOURNAL_MAGIC
    for record in tree:
        payload: bytes = msgpack.packb(record)
        data += _FRAME.pack(len(payload), zlib.crc32(payload)) + payload
    return data


def _decode_snapshot(data: bytes) -> Any:
    tree = json.loads(data)
    del tree["crc32"]
    return tree


def _encode_snapshot(tree: Any) -> bytes:
    # One field a line: a reader of the first lines knows whose it is.
    rest = (
        ",\n".join(f"{json.dumps(key)}: {json.dumps(tree[key])}" for key in tree) + "}\n"
    ).encode()
    return f'{{"crc32": "{zlib.crc32(rest):08x}",\n'.encode() + rest


def _decode_lines(data: bytes) -> Any:
    return [json.loads(line) for line in data.splitlines()]


def _encode_lines(tree: Any) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in tree).encode()


def _decode_index(data: bytes) -> Any:
    return json.loads(data.partition(b"\n")[2])


def _encode_index(tree: Any) -> bytes:
    text = json.dumps(tree).encode()
    return b"%08x\n" % zlib.crc32(text) + text


def _encode_cursor(tree: Any) -> bytes:
    if isinstance(tree, dict) and "trials" in tree:
        trials = json.dumps(tree["trials"], sort_keys=True, separators=(",", ":"))
        tree = {**tree, "crc32": f"{zlib.crc32(trials.encode()):08x}"}
    return json.dumps(tree).encode()


def _encode_claim(tree: Any) -> bytes:
    if not isinstance(tree, str):
        raise TypeError("a claim is a name")
    return tree.encode()


def _decode_tuner(data: bytes) -> Any:
    if not data.startswith(TUNER_MAGIC):
        raise ValueError("no tuner.pkl of this version")
    return msgpack.unpackb(data[len(TUNER_MAGIC) + 12 :], strict_map_key=False)


def _encode_tuner(tree: Any) -> bytes:
    body: bytes = msgpack.packb(tree)
    return TUNER_MAGIC + struct.pack("<IQ", zlib.crc32(body), len(body)) + body


JOURNAL = Form(name="journal", decode=_decode_journal, encode=_encode_journal)
SNAPSHOT = Form(name="snapshot", decode=_decode_snapshot, encode=_encode_snapshot)
TUNER = Form(name="tuner", decode=_decode_tuner, encode=_encode_tuner)
INDEX = Form(name="index", decode=_decode_index, encode=_encode_index)
CURSOR = Form(name="cursor", decode=json.loads, encode=_encode_cursor)
CLAIM = Form(name="claim", decode=bytes.decode, encode=_encode_claim)
LINES = Form(name="lines", decode=_decode_lines, encode=_encode_lines)
JSON = Form(name="json", decode=json.loads, encode=lambda tree: json.dumps(tree).encode())
MSGPACK = Form(name="msgpack", decode=msgpack.unpackb, encode=msgpack.packb)
