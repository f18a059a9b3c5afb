"""`nodes.json`: when a live run last heard from each of its nodes, for `holdfast nodes`.

The journal has no record of beats: there are too many, and no decision depends on one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import NODES, Layout
from holdfast.experiment.folder.trial_folder import read_file
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import replace_file
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.plain_files import parse_table, read_small
from holdfast.trial.bounds import Count, Moment, PlainName
from holdfast.trial.decoding import decode
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.fields import to_fields

_FORMAT = 1
_EVERY_S = 5.0
# A cluster of ten thousand nodes takes one megabyte.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBeat:
    """The last beat of a node: when it arrived (seconds since 1970, by the controller's clock),
    and how much of the node's disk was free then."""

    node: PlainName
    at: Moment
    disk_free_bytes: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    format: Count
    nodes: Sequence[NodeBeat]


class NodesFile:
    """The writer. Call it from a thread: a disk may take long to answer."""

    def __init__(self, layout: Layout, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = layout.nodes
        self._clock = clock
        self._newest: dict[str, NodeBeat] = {}
        self._written: dict[str, NodeBeat] = {}
        self._next_at = -math.inf

    def write(self, beats: Sequence[NodeBeat]) -> bool:
        """Write the newest beat of each node, unless that has not changed or the last file is not
        yet five seconds old. Returns whether it was written.

        Nodes that have no beat any more keep their last one: it says when they were lost. A disk
        that is full, or not there, raises no error: then the file only is older.
        """
        now = self._clock()
        self._newest |= {beat.node: beat for beat in beats}
        if self._newest == self._written or now < self._next_at:
            return False
        try:
            replace_file(self._path, encode(list(self._newest.values())))
        except OSError:
            return False
        self._written, self._next_at = dict(self._newest), now + _EVERY_S
        return True


def encode(beats: Sequence[NodeBeat]) -> bytes:
    """The content of the file."""
    content = to_fields(_Content(format=_FORMAT, nodes=beats))
    return json.dumps(content, indent=1).encode()


def parse(data: bytes) -> dict[str, NodeBeat]:
    """The beats in the file, by node. Raises ValueError."""
    try:
        found: _Content = decode(_Content, parse_table(data))
    except UnreadableRecord as error:
        raise ValueError(str(error)) from None
    if found.format != _FORMAT:
        raise ValueError(f"its format is {found.format}")
    return {beat.node: beat for beat in found.nodes}


def read_beats(layout: Layout | None, location: Location) -> Mapping[str, NodeBeat]:
    """The beats that were written last, here if there is a `layout`, else in storage.

    Empty if there are none, or if they cannot be read: everything else is in the records.
    """
    try:
        if layout is not None:
            return parse(read_small(layout.nodes, _MOST_BYTES))
        data = read_file(location, NODES)
        return {} if data is None else parse(data)
    except (OSError, StorageError, ValueError):
        return {}
