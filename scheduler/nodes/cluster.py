"""The nodes that have joined, what is free on each, and those that have left."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.dataclass import dataclass
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
    """`offer` are the kinds of nodes that may join. `former` are the nodes that left. `learned`
    are the resources that nodes of a kind had, without those that another node of the kind
    exceeded. `settled`: no other nodes are waited for to learn what the cluster has.
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
        """Whether trials run on nodes that join, and not on this machine."""
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
        """Whether a node of this name is or was there."""
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
        """Add a node. Returns whether it shows what nodes of its kind have, or what they have
        not."""
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
        """Whether the last node of this kind has just joined."""
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
        """Whether one of the places is on a node that has left or will leave."""
        return any(not self.is_open(place.node) for place in held.places)

    def has_lost(self, held: Allocation) -> bool:
        """Whether one of the places was on a node that has left."""
        return any(place.node not in self.nodes for place in held.places)

    def took(self, held: Allocation) -> bool:
        """Whether one of the places was on a node that announced its end and then left."""
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
        """Groups of nodes that may have room for the request; the same part of the requests `also`
        fits on all nodes of a group."""
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
        """Whether the node is there, and trials may start on it."""
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
    """Whether `one` has at least as much of everything as `other`."""
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
