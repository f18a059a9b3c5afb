"""head.json names the published part of an experiment: stretches of segments
(`holdfast.syncer.journal.stretches`). Its names are checked before use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.names import inner_path, shown
from holdfast.syncer.journal.stretches import Stretch, parse_stretch_name, stretch_of
from holdfast.syncer.stores.plain_files import parse_table

FORMAT = 2
# A million segments take 100 bytes each.
HEAD_BYTES = 128 << 20
_MOST = 1 << 53


def parse_head(data: bytes) -> dict[str, Any]:
    """The content of a head: `format`, `experiment_id`, `epoch`, and `segments` as dicts of
    `name`, `size` and `crc32`.

    `epoch` is the key of the claim, and `segments` are stretches. Raises ValueError.
    """
    head = parse_table(data)
    if head.get("format") != FORMAT:
        raise ValueError(
            f"it has format {shown(head.get('format'))}, but this version reads {FORMAT}"
        )
    for name in ("experiment_id", "epoch"):
        if type(head.setdefault(name, "")) is not str:
            raise ValueError(f"{name} must be text, not {shown(head[name])}")
    if head["epoch"]:
        inner_path(head["epoch"], "epoch")
    segments = head.get("segments")
    if type(segments) is not list:
        raise ValueError(f"segments must be a list, not {shown(segments)}")
    for segment in segments:
        _check_segment(segment)
    if len({segment["name"] for segment in segments}) != len(segments):
        raise ValueError("two segments have the same name")
    return head


def encode_head(*, experiment_id: str, epoch: str, stretches: Iterable[Stretch]) -> bytes:
    """Encode a head, with a line for each stretch."""
    plain = {"format": FORMAT, "experiment_id": experiment_id, "epoch": epoch}
    start = json.dumps(plain, indent=1).rstrip("\n}")
    lines = ",\n".join(f"  {json.dumps(stretch.plain())}" for stretch in stretches)
    return f'{start},\n "segments": [\n{lines}\n ]\n}}\n'.encode()


def stretches_of(head: Mapping[str, Any]) -> list[Stretch]:
    """The stretches that a head names."""
    return [stretch_of(segment) for segment in head["segments"]]


def is_segment(name: object) -> bool:
    """Whether this can be the name of a segment of the journal, or of a stretch of one."""
    return type(name) is str and parse_stretch_name(name) is not None


def _check_segment(segment: Any) -> None:
    if type(segment) is not dict or not is_segment(segment.get("name")):
        named = segment.get("name") if type(segment) is dict else segment
        raise ValueError(f"a segment must have a name like 000001.log, not {shown(named)}")
    for field in ("size", "crc32"):
        value = segment.get(field)
        if type(value) is not int or not 0 <= value <= _MOST:
            raise ValueError(f"{field} of {segment['name']} must be a number, not {shown(value)}")
