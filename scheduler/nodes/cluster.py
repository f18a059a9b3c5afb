"""The nodes that have joined, what is free on each, and those that have left.

Also the choice of a node for each bundle of a trial, by the strategy that it asks for. To use as
few nodes as possible is a bin packing. For equal bundles the choice here is the best: first the
node that takes the most of them. Of different bundles, larger ones are placed first; a few of them
are tried in other ways if this fails.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import listed
from holdfast.scheduler.capacity import Capacity, Level, units
from holdfast.scheduler.kept import NotKept, Rare
from holdfast.schema import Count, Moment
from holdfast.trial.resources import Allocation, Amounts, NodeKind, Place, PlacementGroupFactory

_IN_EVERY_INDEX = frozenset({"CPU", "GPU"})
# A node: its number, by which nodes with equally much free are sorted, and its name.
Member = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that has joined; `number` counts the nodes of the experiment, with those that left.

    It is `leaving` if it has announced its end, and says `why`: nothing new starts there.
    """

    number: Count
    resources: Amounts
    kind: str = ""
    hostname: str = ""
    address: str = ""
    joined_at: Moment = 0.0
    leaving: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerNode:
    """A node that has left, as it `was` before.

    `is_earlier`: it left before the last restore. Nobody sees a node leave at the end of its run;
    then `left_at` is 0.
    """

    was: Node
    left_at: Moment = 0.0
    cause: str = ""
    is_earlier: bool = False


class Cluster:
    """`offer` are the kinds of nodes that may join. `former` are the nodes that left.
    `learned`: for each kind, the largest resources that its nodes had; several if none of them
    exceeds the others. `settled`: no other nodes are waited for to learn what the cluster has.
    """

    offer: Rare[Sequence[NodeKind]]
    nodes: Rare[dict[str, Node]]
    former: Rare[dict[str, FormerNode]]
    learned: Rare[dict[str, tuple[Amounts, ...]]]
    settled: Rare[bool]
    capacities: NotKept[dict[str, Capacity]]
    # How many bundles each node holds, also of those that request nothing.
    held: NotKept[dict[str, int]]
    # The last request that was found to fit if all nodes had joined: most trials ask for the same.
    fitted: NotKept[PlacementGroupFactory | None]
    # By the resources that requests name, besides CPUs and GPUs.
    _free: NotKept[dict[tuple[str, ...], FreeNodes]]

    def __init__(
        self, offer: Sequence[NodeKind] = (), *, former: Mapping[str, FormerNode] | None = None
    ) -> None:
        self.offer = tuple(offer)
        self.nodes, self.former, self.learned = {}, dict(former or {}), {}
        self.capacities, self.held, self._free = {}, {}, {}
        self.settled, self.fitted = False, None

    @classmethod
    def restored(cls, **attributes: Any) -> Cluster:
        """The cluster that a snapshot describes; nothing is held yet."""
        made = cls()
        vars(made).update(attributes)
        for name, node in made.nodes.items():
            made.capacities[name], made.held[name] = Capacity(node.resources), 0
        return made

    def open_part(self) -> Cluster:
        """A copy with the nodes where trials may start, and what they hold."""
        made = Cluster(self.offer, former=self.former)
        made.learned, made.settled = dict(self.learned), self.settled
        for name, node in self.nodes.items():
            if not node.leaving:
                made.nodes[name], made.held[name] = node, self.held[name]
                made.capacities[name] = self.capacities[name].copy()
        return made

    def __bool__(self) -> bool:
        """True if trials run on nodes that join, and not on this machine."""
        return bool(self.offer)

    @property
    def total(self) -> dict[str, float]:
        """The resources of all nodes that are there."""
        total: dict[str, float] = {}
        for node in self.nodes.values():
            for key, amount in node.resources.items():
                total[key] = round(total.get(key, 0) + amount, 4)
        return total

    @property
    def past(self) -> dict[str, FormerNode]:
        """The former nodes of a cluster whose nodes must all join again."""
        ended = {name: FormerNode(was=node) for name, node in self.nodes.items()}
        every = {**self.former, **ended}
        return {name: replace(node, is_earlier=True) for name, node in every.items()}

    # -- nodes come and go ----------------------------------------------------------------------

    def knows(self, name: str) -> bool:
        """True if a node of this name is or was there."""
        return name in self.nodes or name in self.former

    def join(
        self,
        name: str,
        resources: Mapping[str, float],
        *,
        kind: str,
        hostname: str,
        address: str,
        now: float = 0.0,
    ) -> bool:
        """Add a node. Returns whether it tells something new about its kind: more resources than
        known, or that no other node of the kind will come."""
        self.nodes[name] = Node(
            number=len(self.nodes) + len(self.former),
            resources=resources,
            kind=kind or (self.offer[0].name if len(self.offer) == 1 else ""),
            hostname=hostname,
            address=address,
            joined_at=now,
        )
        self.capacities[name], self.held[name] = Capacity(resources), 0
        self._changed(name)
        is_news = self._learn(self.nodes[name].kind, resources)
        if self._is_complete(self.nodes[name].kind):
            is_news, self.fitted = True, None
        return is_news

    def _is_complete(self, name: str) -> bool:
        """True if the last node of this kind has just joined."""
        most = next((kind.most for kind in self.offer if kind.name == name), None)
        return most is not None and self.count(name) == most

    def count(self, kind: str) -> int:
        """How many nodes of this kind are there."""
        return sum(node.kind == kind for node in self.nodes.values())

    def settle(self) -> None:
        """Wait for no other nodes to learn what the cluster has."""
        self.settled, self.fitted = True, None

    def close(self, name: str, why: str = "") -> None:
        """Start nothing new on the node, because it will leave."""
        self.nodes[name] = replace(self.nodes[name], leaving=True, why=why)
        self._drop(name)

    def lose(self, name: str, cause: str = "", now: float = 0.0) -> None:
        """Forget the node, with all that its workers hold there."""
        if not self.nodes[name].leaving:
            self._drop(name)
        self.former[name] = FormerNode(was=self.nodes.pop(name), cause=cause, left_at=now)
        del self.capacities[name], self.held[name]

    def _learn(self, kind: str, resources: Mapping[str, float]) -> bool:
        known = self.learned.get(kind, ())
        if any(_covers(other, resources) for other in known):
            return False
        kept = [other for other in known if not _covers(resources, other)]
        self.learned[kind] = (*kept, resources)
        return True

    def goes(self, held: Allocation) -> bool:
        """True if one of the places is on a node that has left or will leave."""
        return any(not self.is_open(place.node) for place in held.places)

    def has_lost(self, held: Allocation) -> bool:
        """True if one of the places was on a node that has left."""
        return any(place.node not in self.nodes for place in held.places)

    def took(self, held: Allocation) -> bool:
        """True if one of the places was on a node that announced its end and then left."""
        known = (self.former.get(place.node) for place in held.places)
        return any(node is not None and node.was.leaving for node in known)

    # -- what is free ---------------------------------------------------------------------------

    def find(
        self, amounts: Mapping[str, float], near: str = "", avoid: Container[str] = ()
    ) -> str | None:
        """The node where this request leaves the least free; `near` if it fits there.

        A request for nothing goes to the node with the fewest others.
        """
        if self.is_open(near) and near not in avoid and self.capacities[near].room(amounts, 1):
            return near
        if not any(amounts.values()):
            return self._least_used(avoid)
        for group in self.groups(amounts):
            name = next((name for _, name in group if name not in avoid), None)
            if name is not None and self.capacities[name].room(amounts, 1):
                return name
        return None

    def groups(
        self, amounts: Mapping[str, float], also: Sequence[Mapping[str, float]] = ()
    ) -> Iterator[list[Member]]:
        """Groups of nodes that may have room for `amounts`. All nodes of a group have equal room
        for it, and for each of `also`."""
        names = {key for one in (amounts, *also) for key, amount in one.items() if amount}
        names -= _IN_EVERY_INDEX
        others = tuple(sorted(names)) if names else ()
        index = self._free.get(others)
        if index is None:
            index = self._free[others] = FreeNodes(others)
            for name, node in self.nodes.items():
                if not node.leaving:
                    index.put((node.number, name), self.capacities[name])
        return index.groups(amounts)

    def is_open(self, name: str) -> bool:
        """True if the node is there, and trials may start on it."""
        node = self.nodes.get(name)
        return node is not None and not node.leaving

    def take(self, name: str, amounts: Mapping[str, float]) -> Place | None:
        """A place on this node, if it has room."""
        taken = self.capacities[name].take(amounts)
        if taken is None:
            return None
        self.held[name] += 1
        self._changed(name)
        return Place(node=name, amounts=amounts, gpus=taken.gpus)

    def hold(self, places: Sequence[Place]) -> None:
        """Count places that are already held. Those on former nodes do not count."""
        for place in places:
            if place.node in self.nodes:
                self.capacities[place.node].hold(place)
                self.held[place.node] += 1
                self._changed(place.node)

    def give_back(self, places: Sequence[Place]) -> None:
        """Free the places. Those on former nodes are gone."""
        for place in places:
            if place.node in self.nodes:
                self.capacities[place.node].give_back(place)
                self.held[place.node] -= 1
                self._changed(place.node)

    def _least_used(self, avoid: Container[str]) -> str | None:
        """Requests for nothing are rare, so each node may be looked at."""
        several = [name for name in self.nodes if self.is_open(name) and name not in avoid]
        return min(several, key=lambda name: self.held[name], default=None)

    def _changed(self, name: str) -> None:
        node = self.nodes[name]
        if node.leaving:
            return
        for index in self._free.values():
            index.put((node.number, name), self.capacities[name])

    def _drop(self, name: str) -> None:
        for index in self._free.values():
            index.drop((self.nodes[name].number, name))


def _covers(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if `one` has at least as much of everything as `other`."""
    return all(one.get(key, 0) >= amount for key, amount in other.items())


class FreeNodes:
    """Nodes in groups: those of a group have equally much free of GPUs, CPUs and `others`.

    The same requests fit on all nodes of a group. A thousand nodes that run up to ten equal trials
    each are at most eleven groups.
    """

    def __init__(self, others: tuple[str, ...]) -> None:
        self._others = others
        self._level_of: dict[Member, Level] = {}
        self._groups: dict[Level, list[Member]] = {}
        self._levels: list[Level] = []

    def put(self, member: Member, capacity: Capacity) -> None:
        """Add a node, or note that what is free there has changed."""
        level, was = capacity.level(self._others), self._level_of.get(member)
        if was == level:
            return
        if was is not None:
            self._leave(was, member)
        self._level_of[member] = level
        group = self._groups.get(level)
        if group is None:
            self._groups[level] = [member]
            insort(self._levels, level)
        else:
            insort(group, member)

    def drop(self, member: Member) -> None:
        """Remove a node."""
        self._leave(self._level_of.pop(member), member)

    def groups(self, amounts: Mapping[str, float]) -> Iterator[list[Member]]:
        """The groups that may have room for this request, those with the least free first."""
        least = units(amounts.get("GPU", 0)), units(amounts.get("CPU", 0))
        for at in range(bisect_left(self._levels, least), len(self._levels)):
            yield self._groups[self._levels[at]]

    def _leave(self, level: Level, member: Member) -> None:
        group = self._groups[level]
        if len(group) == 1:
            del self._groups[level], self._levels[bisect_left(self._levels, level)]
        else:
            del group[bisect_left(group, member)]


Wanted = Mapping[str, float]
# For a request whose bundles differ: the most bundles to place by backtracking, and the most
# attempts to place one of them.
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
    """True if the bundles would fit now."""
    if len(request.bundles) == 1:
        return cluster.find(request.bundles[0]) is not None
    places = arrange(cluster, request)
    cluster.give_back(places or ())
    return places is not None


def has_room_instead(
    cluster: Cluster, held: Sequence[Place], request: PlacementGroupFactory
) -> bool:
    """True if the bundles would fit if a trial gave back the places that it holds."""
    cluster.give_back(held)
    fits = has_room(cluster, request)
    cluster.hold(held)
    return fits


def serves(places: Sequence[Place], request: PlacementGroupFactory) -> bool:
    """True if places that a worker has are what the request asks for."""
    if len(places) != len(request.bundles):
        return False
    if any(place.amounts != bundle for place, bundle in zip(places, request.bundles, strict=True)):
        return False
    several = [place.node for place in places if any(place.amounts.values())]
    if request.strategy == "STRICT_SPREAD":
        return len(several) == len(set(several))
    return request.strategy != "STRICT_PACK" or len(set(several)) <= 1


class _Arranging:
    """The places found so far, and the bundles that are left: equal ones together, the largest
    first."""

    def __init__(self, cluster: Cluster, bundles: Sequence[Wanted], near: str) -> None:
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

    def _try(self, several: Sequence[tuple[Wanted, int]], strategy: str) -> bool:
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

    def _candidates(self, amounts: Wanted, strategy: str) -> list[str]:
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

    def _room_in_all(self, amounts: Wanted, most: int) -> int:
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

    def _groups(self, every: Sequence[Wanted]) -> Iterator[list[tuple[int, str]]]:
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

    def _least_used(self, amounts: Wanted) -> str | None:
        """The node with the fewest bundles of this trial that has room for another."""
        capacities = self._cluster.capacities
        several = [name for name in self._used if capacities[name].room(amounts, 1)]
        return min(several, key=lambda name: self._used[name], default=None)

    def _take(self, name: str, amounts: Wanted, at: int) -> None:
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


def _by_size(bundles: Sequence[Wanted]) -> list[tuple[Wanted, list[int]]]:
    """The bundles that request something: each size once, the largest first, with the
    positions of its bundles."""
    several: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for at, bundle in enumerate(bundles):
        if any(bundle.values()):
            several.setdefault(tuple(sorted(bundle.items())), []).append(at)
    groups = [(bundles[found[0]], found) for found in several.values()]
    return sorted(groups, key=lambda group: _size(group[0]), reverse=True)


def _size(amounts: Wanted) -> tuple[float, float, float]:
    others = sum(amount for key, amount in amounts.items() if key not in ("CPU", "GPU"))
    return amounts.get("GPU", 0), amounts.get("CPU", 0), others


# More nodes, or trials at once, than any cluster has.
MANY = 1_000_000
_SHOWN_NODES = 5
_SHOWN_SHAPES = 10


def may_fit(cluster: Cluster, request: PlacementGroupFactory) -> bool:
    """True if the bundles would fit if all nodes had joined and nothing else ran.

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
    """True if a node of this kind may join that has more than those that have."""
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
    return MANY if kind.most is None else kind.most


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
