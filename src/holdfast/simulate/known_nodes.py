"""Simulated nodes that the machine knows: they join, announce their end, leave, and join again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import Event, NodeJoined, NodeLeaving, NodeLeft
from holdfast.simulate.faults import Faults
from holdfast.trial.errors import ProcessFailureKind
from holdfast.trial.resources import Allocation, Amounts, NodeKind

KIND = "simulated"
# More workers than a node has: a place is a node's number, and a worker's number there.
_MOST_PLACES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSpec:
    """So many nodes, each with these resources."""

    count: int
    resources: Amounts

    @property
    def kind(self) -> NodeKind:
        """The offer of these nodes."""
        return NodeKind(name=KIND, resources=self.resources, most=self.count)


class KnownNodes:
    """The machine chooses the node of each worker. A node that is back has a new name."""

    exit_kind: ProcessFailureKind = "lost"  # the machine knows which nodes were taken back

    def __init__(self, spec: NodesSpec, faults: Faults, post: Callable[[Event], None]) -> None:
        self.nodes = spec.count
        self._resources: Mapping[str, float] = spec.resources
        self._notice_s = faults.notice_s if faults.preempts else None
        self._post = post
        self._names = [""] * spec.count
        self._numbers: dict[str, int] = {}
        self._free: list[list[int]] = [[] for _ in range(spec.count)]
        # By node, the places with a bundle there, in the order in which they were taken.
        self._there: list[dict[int, None]] = [{} for _ in range(spec.count)]
        self._nodes_of: dict[int, set[int]] = {}
        self._made = [0] * spec.count
        self._times = [0] * spec.count

    def open(self) -> None:
        """All nodes join."""
        for node in range(self.nodes):
            self.restore(node)

    def take(self, allocation: Allocation) -> int:
        """A place on the node of the first bundle."""
        numbers = {self._numbers[place.node] for place in allocation.places}
        first = self._numbers[allocation.places[0].node]
        free = self._free[first]
        place = heappop(free) if free else first * _MOST_PLACES + self._made[first]
        self._made[first] += place % _MOST_PLACES == self._made[first]
        self._nodes_of[place] = numbers
        for node in numbers:
            self._there[node][place] = None
        return place

    def give_back(self, place: int) -> None:
        """Free the place."""
        for node in self._nodes_of.pop(place):
            del self._there[node][place]
        heappush(self._free[place // _MOST_PLACES], place)

    def name_of(self, place: int) -> str:
        """The name of the place's node."""
        return self._names[place // _MOST_PLACES]

    def is_there(self, name: str) -> bool:
        """Whether the node of this name has not left."""
        return name in self._numbers

    def announce(self, node: int) -> float:
        """Tell the machine that the node will be taken back, if it is told; in how many
        seconds."""
        if self._notice_s is None:
            return 0.0
        name = self._names[node]
        self._post(NodeLeaving(node=name, seconds=self._notice_s, why="it is taken back"))
        return self._notice_s

    def lose(self, node: int) -> Sequence[int]:
        """Take the node away until `restore`; return the places that are lost with it."""
        name = self._names[node]
        del self._numbers[name]
        self._post(NodeLeft(node=name, cause="was lost in the simulation"))
        return list(self._there[node])

    def restore(self, node: int) -> None:
        """The node joins, as `node-7` and after its first loss as `node-7-2`."""
        self._times[node] += 1
        times = self._times[node]
        name = f"node-{node}" if times == 1 else f"node-{node}-{times}"
        self._names[node] = name
        self._numbers[name] = node
        self._post(NodeJoined(node=name, resources=self._resources, hostname=name, kind=KIND))
