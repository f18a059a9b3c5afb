"""The places of simulated workers, on nodes that may go away."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from holdfast.simulate.faults import Faults, Luck


class Cluster:
    """A number of places, `per_node` on each node. The lowest free one is taken first."""

    def __init__(self, places: int, faults: Faults, luck: Luck) -> None:
        self.per_node = faults.workers_per_node
        self.nodes = -(-places // self.per_node)
        self._places = places
        self._faults = faults
        self._luck = luck
        self._free = list(range(places))
        self._down: set[int] = set()
        self._slowness: dict[int, float] = {}

    def take(self) -> int | None:
        """Take a free place; None if there is none."""
        return heappop(self._free) if self._free else None

    def give_back(self, place: int) -> None:
        """Free the place, at once or when its node is back."""
        if self.node_of(place) not in self._down:
            heappush(self._free, place)

    def node_of(self, place: int) -> int:
        return place // self.per_node

    def lose(self, node: int) -> None:
        """Take the node away, with all its places, until `restore`."""
        self._down.add(node)
        self._free = [place for place in self._free if self.node_of(place) != node]
        heapify(self._free)

    def restore(self, node: int) -> None:
        """Free all places of the node."""
        self._down.discard(node)
        for place in self.places_of(node):
            heappush(self._free, place)

    def places_of(self, node: int) -> Iterator[int]:
        first = node * self.per_node
        return iter(range(first, min(first + self.per_node, self._places)))

    def slowness(self, place: int) -> float:
        """The factor by which an iteration takes longer there."""
        faults = self._faults
        if not faults.straggler_share:
            return 1.0
        known = self._slowness.get(place)
        if known is None:
            is_slow = self._luck.draw("straggler", place) < faults.straggler_share
            known = self._slowness[place] = faults.straggler_factor if is_slow else 1.0
        return known
