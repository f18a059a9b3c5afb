"""Chooses a node for each bundle of a trial, by the strategy that it asks for, and judges if a
request can ever be placed on the nodes that a cluster may have.

To use as few nodes as possible is a bin packing. For equal bundles the choice here is the best:
first the node that takes the most of them. Of different bundles, larger ones are placed first; a
few of them are tried in other ways if this fails.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from holdfast.names import listed
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.trial.resources import Allocation, NodeKind, Place, PlacementGroupFactory

Amounts = Mapping[str, float]
# For bundles that differ: of eight at most, so many are placed and taken back.
_MOST_TRIED = 8
_MOST_TRIES = 300


def arrange(
    cluster: Cluster, request: PlacementGroupFactory, near: str = ""
) -> tuple[Place, ...] | None:
    """Take a place for each bundle; None if not all of them fit. `near` is a node to prefer."""
    bundles = request.bundles
    if len(bundles) == 1:
        name = cluster.find(bundles[0], near)
        place = None if name is None else cluster.take(name, bundles[0])
        return None if place is None else (place,)
    arranging = _Arranging(cluster, bundles, near)
    if arranging.by(request.strategy):
        return arranging.places
    arranging.undo()
    if request.strategy != "STRICT_PACK" and arranging.by_trying(request.strategy):
        return arranging.places
    arranging.undo()
    return None


def has_room(cluster: Cluster, request: PlacementGroupFactory) -> bool:
    """Whether the bundles would fit now."""
    if len(request.bundles) == 1:
        return cluster.find(request.bundles[0]) is not None
    places = arrange(cluster, request)
    cluster.give_back(places or ())
    return places is not None


def has_room_instead(
    cluster: Cluster, held: Sequence[Place], request: PlacementGroupFactory
) -> bool:
    """Whether the bundles would fit if a trial gave back the places that it holds."""
    cluster.give_back(held)
    fits = has_room(cluster, request)
    cluster.hold(held)
    return fits


def serves(places: Sequence[Place], request: PlacementGroupFactory) -> bool:
    """Whether places that a worker has are what the request asks for."""
    if len(places) != len(request.bundles):
        return False
    if any(place.amounts != bundle for place, bundle in zip(places, request.bundles, strict=True)):
        return False
    several = [place.node for place in places if any(place.amounts.values())]
    if request.strategy == "STRICT_SPREAD":
        return len(several) == len(set(several))
    return request.strategy != "STRICT_PACK" or len(set(several)) <= 1


class _Arranging:
    """The places found so far, and the bundles that are left: by equal ones, the larger first."""

    def __init__(self, cluster: Cluster, bundles: Sequence[Amounts], near: str) -> None:
        self._cluster = cluster
        self._bundles = bundles
        self._near = near
        self._found: dict[int, Place] = {}
        self._left = self._every = _by_size(bundles)
        self._used: dict[str, int] = {}
        self._tries = 0

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple([self._found[at] for at in range(len(self._bundles))])

    def undo(self) -> None:
        """Give back all that was taken."""
        self._cluster.give_back(list(self._found.values()))
        self._found, self._used = {}, {}

    def by(self, strategy: str) -> bool:
        """Place all bundles; False if not all of them fit."""
        match strategy:
            case "SPREAD" | "STRICT_SPREAD":
                fits = self._spread(strictly=strategy == "STRICT_SPREAD")
            case _:
                fits = self._pack(strictly=strategy == "STRICT_PACK")
        return fits and self._add_the_empty()

    def by_trying(self, strategy: str) -> bool:
        """Place a few bundles that differ, also where another choice must be taken back."""
        several = [(amounts, at) for amounts, found in self._every for at in found]
        if len(self._every) < 2 or len(several) > _MOST_TRIED:
            return False
        self._left = self._every
        return self._may_fit() and self._try(several, strategy) and self._add_the_empty()

    def _try(self, several: Sequence[tuple[Amounts, int]], strategy: str) -> bool:
        if not several:
            return True
        (amounts, at), *rest = several
        for name in self._candidates(amounts, strategy):
            self._tries += 1
            if self._tries > _MOST_TRIES:
                return False
            self._take(name, amounts, at)
            if self._try(rest, strategy):
                return True
            self._take_back(at)
        return False

    def _candidates(self, amounts: Amounts, strategy: str) -> list[str]:
        """A node of each group that has room; for PACK those of this trial first, else others."""
        strictly, packs = strategy == "STRICT_SPREAD", strategy == "PACK"
        found = []
        for group in self._groups([each for each, _ in self._every]):
            several = (name for _, name in group if not (strictly and name in self._used))
            name = next(several, None)
            if name is not None and self._cluster.capacities[name].room(amounts, 1):
                found.append(name)
        return sorted(found, key=lambda name: (name in self._used) is not packs)

    def _pack(self, *, strictly: bool) -> bool:
        if not self._may_fit():
            return False
        while self._left:
            name, count = self._best()
            if not count or (strictly and count < sum(len(at) for _, at in self._left)):
                return False
            self._fill(name)
        return True

    def _spread(self, *, strictly: bool) -> bool:
        for amounts, several in self._left:
            for at in several:
                name = self._cluster.find(amounts, self._near, avoid=self._used)
                if name is None and not strictly:
                    name = self._least_used(amounts)
                if name is None:
                    return False
                self._take(name, amounts, at)
        return True

    def _add_the_empty(self) -> bool:
        """Put bundles that request nothing to the first that requests something."""
        empty = [at for at in range(len(self._bundles)) if at not in self._found]
        if not empty:
            return True
        first = self._found[min(self._found)].node if self._found else None
        name = first or self._cluster.find({}, self._near)
        if name is None:
            return False
        for at in empty:
            self._take(name, self._bundles[at], at)
        return True

    def _may_fit(self) -> bool:
        """Whether the sum of what is free suffices: most requests that do not fit end here."""
        return all(
            self._room_in_all(amounts, len(several)) >= len(several)
            for amounts, several in self._left
        )

    def _room_in_all(self, amounts: Amounts, most: int) -> int:
        room = 0
        for group in self._cluster.groups(amounts):
            room += len(group) * self._capacity(group).room(amounts, most)
            if room >= most:
                break
        return room

    def _best(self) -> tuple[str, int]:
        """The node that takes the most bundles, and how many; of several the one with the least
        free."""
        best, most = "", 0
        if self._cluster.is_open(self._near):
            best, most = self._near, self._room_on(self._cluster.capacities[self._near])
        every = [amounts for amounts, _ in self._left]
        for group in self._groups(every):
            count = self._room_on(self._capacity(group))
            if count > most:
                best, most = group[0][1], count
        return best, most

    def _groups(self, every: Sequence[Amounts]) -> Iterator[list[tuple[int, str]]]:
        # A node may have room only for the smallest of them.
        return self._cluster.groups(every[0] if len(every) == 1 else {}, every)

    def _capacity(self, group: Sequence[tuple[int, str]]) -> Capacity:
        return self._cluster.capacities[group[0][1]]

    def _room_on(self, capacity: Capacity) -> int:
        """How many of the bundles that are left a node would take."""
        if len(self._left) == 1:
            amounts, several = self._left[0]
            return capacity.room(amounts, len(several))
        taken: list[Allocation | None] = []
        for amounts, several in self._left:
            room = capacity.room(amounts, len(several))
            taken.extend([capacity.take(amounts) for _ in range(room)])
        for allocation in taken:
            assert allocation is not None, "there is less room than counted"
            capacity.give_back(allocation)
        return len(taken)

    def _fill(self, name: str) -> None:
        """Put as many bundles as possible on this node."""
        left = []
        for amounts, several in self._left:
            count = self._cluster.capacities[name].room(amounts, len(several))
            for at in several[:count]:
                self._take(name, amounts, at)
            if several[count:]:
                left.append((amounts, several[count:]))
        self._left = left

    def _least_used(self, amounts: Amounts) -> str | None:
        """The node with the fewest bundles of this trial that has room for another."""
        capacities = self._cluster.capacities
        several = [name for name in self._used if capacities[name].room(amounts, 1)]
        return min(several, key=lambda name: self._used[name], default=None)

    def _take(self, name: str, amounts: Amounts, at: int) -> None:
        place = self._cluster.take(name, amounts)
        assert place is not None, f"{name} has no room for {amounts}"
        self._found[at] = place
        self._used[name] = self._used.get(name, 0) + 1

    def _take_back(self, at: int) -> None:
        place = self._found.pop(at)
        self._cluster.give_back([place])
        self._used[place.node] -= 1
        if not self._used[place.node]:
            del self._used[place.node]


def _by_size(bundles: Sequence[Amounts]) -> list[tuple[Amounts, list[int]]]:
    """The bundles that request something, by equal ones, each with their positions."""
    several: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for at, bundle in enumerate(bundles):
        if any(bundle.values()):
            several.setdefault(tuple(sorted(bundle.items())), []).append(at)
    groups = [(bundles[found[0]], found) for found in several.values()]
    return sorted(groups, key=lambda group: _size(group[0]), reverse=True)


def _size(amounts: Amounts) -> tuple[float, float, float]:
    others = sum(amount for key, amount in amounts.items() if key not in ("CPU", "GPU"))
    return amounts.get("GPU", 0), amounts.get("CPU", 0), others


_NO_LIMIT = 1_000_000
_SHOWN_NODES = 5
_SHOWN_SHAPES = 10


def may_fit(cluster: Cluster, request: PlacementGroupFactory) -> bool:
    """Whether the bundles would fit if all nodes had joined and nothing else ran.

    A node that has not joined may have as much as the request needs of what it detects itself.
    """
    if request == cluster.fitted:
        return True
    imagined = Cluster(cluster.offer)
    for kind, resources, most in _shapes(cluster, request):
        # More nodes than bundles are of no use.
        for _ in range(min(len(request.bundles), most)):
            name = f"node-{len(imagined.nodes)}"
            imagined.join(name, resources, kind=kind, hostname="", address="")
    fits = has_room(imagined, request)
    if fits:
        cluster.fitted = request
    return fits


def may_differ(cluster: Cluster, kind: NodeKind) -> bool:
    """Whether a node of this kind may join that has more than those that have."""
    is_known = kind.resources is not None and not kind.detects
    return not (is_known or cluster.settled) and _more(cluster, kind) > 0


def offer_text(cluster: Cluster, request: PlacementGroupFactory | None = None) -> str:
    """What the cluster can have, for an error message; of memory only if the request has some."""
    return "; ".join(_kind_text(cluster, kind, request) for kind in cluster.offer)


def resources_of(cluster: Cluster, kind: NodeKind) -> Iterator[Mapping[str, float]]:
    """What nodes of the kind should have, and what those had that joined."""
    if kind.resources is not None and not kind.detects:
        yield kind.resources
    for resources in cluster.learned.get(kind.name, ()):
        if resources != kind.resources or kind.detects:
            yield resources


def _shapes(
    cluster: Cluster, request: PlacementGroupFactory
) -> Iterator[tuple[str, Mapping[str, float], int]]:
    """The nodes that can be there: kind, resources, how many."""
    offered = {kind.name for kind in cluster.offer}
    for kind in cluster.offer:
        is_known = kind.resources is not None and not kind.detects
        more = _more(cluster, kind)
        if not is_known:
            yield from _there(cluster, kind.name)
        if may_differ(cluster, kind):
            yield kind.name, _unknown(kind, request), more
            continue
        for resources in resources_of(cluster, kind):
            yield kind.name, resources, _limit(kind) if is_known else more
    for name in cluster.learned.keys() - offered:
        yield from _there(cluster, name)


def _there(cluster: Cluster, kind: str) -> Iterator[tuple[str, Mapping[str, float], int]]:
    """The nodes of this kind that are there."""
    several = (node for node in cluster.nodes.values() if node.kind == kind)
    found = Counter(tuple(sorted(node.resources.items())) for node in several)
    for resources, count in found.items():
        yield kind, dict(resources), count


def _limit(kind: NodeKind) -> int:
    return _NO_LIMIT if kind.most is None else kind.most


def _more(cluster: Cluster, kind: NodeKind) -> int:
    """How many nodes of this kind have not joined."""
    return max(0, _limit(kind) - cluster.count(kind.name))


def _unknown(kind: NodeKind, request: PlacementGroupFactory) -> dict[str, float]:
    """A node with all that the request needs, but for what is known of the kind."""
    needed: dict[str, float] = {
        name: math.ceil(sum(bundle.get(name, 0) for bundle in request.bundles))
        for name in {name for bundle in request.bundles for name in bundle}
    }
    if kind.resources is None:
        return needed
    return {**{n: a for n, a in needed.items() if n in kind.detects}, **kind.resources}


def _kind_text(cluster: Cluster, kind: NodeKind, request: PlacementGroupFactory | None) -> str:
    shows_memory = request is not None and any("memory" in one for one in request.bundles)

    def text(resources: Mapping[str, float]) -> str:
        return str({n: a for n, a in resources.items() if n != "memory" or shows_memory})

    most = "" if kind.most is None else f" (at most {kind.most:,})"
    if kind.resources is not None and not kind.detects:
        every = " or ".join(text(each) for each in resources_of(cluster, kind))
        return f"{kind.name!r} nodes with {every}{most}"
    here = [node for node in cluster.nodes.items() if node[1].kind == kind.name]
    shapes: dict[str, list[str]] = {}
    for name, node in here:
        shapes.setdefault(text(node.resources), []).append(name)
    first = [*shapes.items()][:_SHOWN_SHAPES]
    shown = [f"{have} on {listed(names, _SHOWN_NODES)}" for have, names in first]
    given = f" with {text(kind.resources)}" if kind.resources and not shown else ""
    return f"{kind.name!r} nodes{given}{most}{': ' if shown else ''}{', '.join(shown)}"
