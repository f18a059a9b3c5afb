"""The places of simulated workers, on nodes that may go away.

The machine knows nothing of the nodes of a `Cluster`: it sees only that workers are lost, and that
new ones take longer to start. It knows those of `holdfast.simulate.known_nodes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from holdfast.simulate.faults import Faults
from holdfast.trial.errors import ProcessFailureKind
from holdfast.trial.resources import Allocation


class Places(Protocol):
    """The places of workers. A node is a number from 0 to `nodes`; `exit_kind` is how workers end
    that are lost with theirs."""

    nodes: int
    exit_kind: ProcessFailureKind

    def take(self, allocation: Allocation) -> int | None:
        """Take a free place; None if there is none."""

    def give_back(self, place: int) -> None:
        """Free the place, at once or when its node is back."""

    def name_of(self, place: int) -> str:
        """The name of the place's node."""

    def open(self) -> None:
        """The run begins."""

    def announce(self, node: int) -> float:
        """The node will go away in so many seconds."""

    def lose(self, node: int) -> Sequence[int]:
        """Take the node away until `restore`; return the places that are lost with it."""

    def restore(self, node: int) -> None:
        """The node is back."""


class Cluster:
    """A number of places, `per_node` on each node. The lowest free one is taken first."""

    def __init__(self, places: int, faults: Faults) -> None:
        self.per_node = faults.workers_per_node
        self.nodes = -(-places // self.per_node)
        self.exit_kind: ProcessFailureKind = "preempted" if faults.preempts else "lost"
        self._places = places
        self._free = list(range(places))
        self._down: set[int] = set()

    def take(self, allocation: Allocation) -> int | None:
        """Take a free place; None if there is none."""
        return heappop(self._free) if self._free else None

    def give_back(self, place: int) -> None:
        """Free the place, at once or when its node is back."""
        if place // self.per_node not in self._down:
            heappush(self._free, place)

    def name_of(self, place: int) -> str:
        """The name of the place's node."""
        return f"node-{place // self.per_node}"

    def open(self) -> None:
        """Nothing needs to be known."""

    def announce(self, node: int) -> float:
        """Nobody is told."""
        return 0.0

    def lose(self, node: int) -> Sequence[int]:
        """Take the node away, with all its places, until `restore`."""
        self._down.add(node)
        self._free = [place for place in self._free if place // self.per_node != node]
        heapify(self._free)
        return self._places_of(node)

    def restore(self, node: int) -> None:
        """Free all places of the node."""
        self._down.discard(node)
        for place in self._places_of(node):
            heappush(self._free, place)

    def _places_of(self, node: int) -> range:
        first = node * self.per_node
        return range(first, min(first + self.per_node, self._places))
