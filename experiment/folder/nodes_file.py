"""`nodes.json`: when a live run last heard from each of its nodes, and which nodes it waits for.

The journal has no record of that: beats are many, no decision depends on one, and before the first
node has joined there is no journal.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import NODES, Layout
from holdfast.experiment.folder.trial_folder import read_file
from holdfast.schema import Count, Moment, PlainName, UnreadableRecord, decode, to_fields
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import replace_file
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import parse_table, read_small

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
class NodesNews:
    """The content of the file. `waiting` says what the engine waits for; "" for nothing."""

    format: Count
    nodes: Sequence[NodeBeat] = ()
    waiting: str = ""

    @property
    def beats(self) -> dict[str, NodeBeat]:
        """The last beat of each node."""
        return {beat.node: beat for beat in self.nodes}


_NOTHING = NodesNews(format=_FORMAT)


class NodesFile:
    """The writer. Call it from a thread: a disk may take long to answer."""

    def __init__(self, layout: Layout, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = layout.nodes
        self._clock = clock
        self._newest: dict[str, NodeBeat] = {}
        self._written: bytes = encode(_NOTHING)
        self._next_at = -math.inf

    def write(self, beats: Sequence[NodeBeat], waiting: str = "") -> bool:
        """Write the newest beat of each node, and what is waited for, unless that has not changed
        or the last file is not yet five seconds old. Returns whether it was written.

        Nodes that have no beat any more keep their last one: it says when they were lost. A disk
        that is full, or not there, raises no error: then the file only is older.
        """
        now = self._clock()
        self._newest |= {beat.node: beat for beat in beats}
        data = encode(
            NodesNews(format=_FORMAT, nodes=list(self._newest.values()), waiting=waiting)
        )
        if data == self._written or now < self._next_at:
            return False
        try:
            replace_file(self._path, data)
        except OSError:
            return False
        self._written, self._next_at = data, now + _EVERY_S
        return True


def encode(news: NodesNews) -> bytes:
    """The bytes of the file."""
    return json.dumps(to_fields(news), indent=1).encode()


def parse(data: bytes) -> NodesNews:
    """The content of the file, checked. Raises ValueError."""
    try:
        found: NodesNews = decode(NodesNews, parse_table(data))
    except UnreadableRecord as error:
        raise ValueError(str(error)) from None
    if found.format != _FORMAT:
        raise ValueError(f"its format is {found.format}")
    return found


def read_news(place: Layout | Location) -> NodesNews:
    """The content that was written last, on this machine or in storage.

    Empty if there is nothing, or if they cannot be read: everything else is in the records.
    """
    try:
        if isinstance(place, Layout):
            return parse(read_small(place.nodes, _MOST_BYTES))
        data = read_file(place, NODES)
        return _NOTHING if data is None else parse(data)
    except (OSError, StorageError, ValueError):
        return _NOTHING
