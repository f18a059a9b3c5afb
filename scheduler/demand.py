"""The nodes that an experiment could use.

`demand` places the trials that wait, and those that the search may still suggest, in thought:
first on what is free, then on further nodes of the offer, as long as it has some.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.dataclass import dataclass
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.confirming import fresh_runs
from holdfast.scheduler.launching import is_over
from holdfast.scheduler.nodes.cluster import MANY, Cluster, arrange, may_differ, resources_of
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.state import State
from holdfast.trial.resources import NodeKind, PlacementGroupFactory

# The trials of several bundles that one count places; the others wait for the next count.
_MOST_GANGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """`wanted`: by kind, how many nodes the experiment could use, with those that it uses, and at
    most what the offer has. `here`: the nodes that are there to stay; `idle`: those of them that
    hold nothing, and that nothing waits for."""

    wanted: Mapping[str, int]
    idle: tuple[str, ...]
    here: tuple[str, ...] = ()


def demand(state: State, total: int | None) -> Demand:
    """The nodes that the experiment could use now. It reads every node: do not call it for every
    event.

    `total` is the number of trials that the search makes if nothing ends it, also those of a
    grid, which the machine does not know; None if it has no end.
    """
    thought = _Thought(state.cluster)
    left = math.inf if state.spec.max_concurrent is None else state.spec.max_concurrent
    left -= len(state.placement.holds)
    if not (state.ending or state.finished):
        for request in _growing(state):
            thought.place(request)
        for request in _waiting(state):
            if left > 0:
                thought.place_whole_or_least(request)
            left -= 1
        resources = state.spec.resources
        if resources is not None and (count := min(left, _unsuggested(state, total))) > 0:
            thought.place_several(resources, count)
    return thought.result()


def _growing(state: State) -> Iterator[PlacementGroupFactory]:
    """The bundles that running elastic trials lack."""
    for trial_id in state.placement.holds:
        trial = state.trials[trial_id]
        if trial.bundles and trial.status.has_worker:
            for bundle in trial.spec.resources.bundles[trial.bundles :]:
                yield PlacementGroupFactory([bundle])


def _waiting(state: State) -> Iterator[PlacementGroupFactory]:
    placement = state.placement
    for trial_id in (
        *placement.queue,
        *placement.waiting_for(WaitsFor.RETRY, WaitsFor.CHECKPOINT),
    ):
        yield state.trials[trial_id].spec.resources


def _unsuggested(state: State, total: int | None) -> float:
    """The number of trials that the search may still suggest; infinity if it has no end."""
    if state.confirming:
        return len(list(fresh_runs(state.spec, state.trials)))
    if is_over(state) or state.search_waits:
        return 0
    if total is None:
        return math.inf
    return max(total - state.made_by_search, 0)


class _Thought:
    """The cluster as it would be with more trials and more nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster.open_part()
        self._held = Counter(self._cluster.held)
        self._there = Counter(node.kind for node in self._cluster.nodes.values())
        self._asked: Counter[str] = Counter()
        self._more: Counter[str] = Counter()
        self._present = tuple(self._cluster.nodes)

    def result(self) -> Demand:
        used = {name for name in self._cluster.nodes if self._held[name]}
        wanted = Counter(self._cluster.nodes[name].kind for name in used) + self._more
        return Demand(
            wanted={kind.name: wanted[kind.name] for kind in self._cluster.offer},
            idle=tuple(name for name in self._present if name not in used),
            here=self._present,
        )

    def place_whole_or_least(self, request: PlacementGroupFactory) -> None:
        """Place all bundles, or those that the trial needs at least."""
        if not self.place(request) and request.is_elastic:
            self.place(request.first(request.least_bundles))

    def place(self, request: PlacementGroupFactory) -> bool:
        """Place the bundles, on more nodes if necessary and possible."""
        added: list[str] = []
        while (places := arrange(self._cluster, request)) is None:
            kind = self._kind_for(request) if len(added) < len(request.bundles) else None
            if kind is None:
                for name in added:
                    self._remove(name)
                return False
            if not (name := self._add(kind, request)):
                return True
            added.append(name)
        self._held.update(place.node for place in places)
        return True

    def place_several(self, request: PlacementGroupFactory, most: float) -> None:
        """Place at most `most` equal trials. Trials of one bundle are counted together, as there
        may be thousands. For an endless search on a cluster without a limit, place one."""
        if most == math.inf and any(kind.most is None for kind in self._cluster.offer):
            most = 1
        several = [bundle for bundle in request.bundles if any(bundle.values())]
        if len(several) == 1:
            self._count(several[0], int(min(most, MANY)))
            return
        for _ in range(int(min(most, _MOST_GANGS))):
            if not self.place(request):
                break

    def _count(self, bundle: Mapping[str, float], count: int) -> None:
        for group in list(self._cluster.groups(bundle)):
            for _, name in group:
                room = self._cluster.capacities[name].room(bundle, count)
                self._held[name] += room
                count -= room
        single = PlacementGroupFactory([bundle])
        while count > 0 and (kind := self._kind_for(single)) is not None:
            room = max(self._room_on(kind, bundle, count), 1)
            nodes = min(-(-count // room), self._left_of(kind))
            self._asked[kind.name] += nodes
            self._more[kind.name] += nodes
            count -= nodes * room

    def _room_on(self, kind: NodeKind, bundle: Mapping[str, float], most: int) -> int:
        """The number of these bundles, at most `most`, that fit on a node of the kind; 1 if its
        size is not known."""
        several = resources_of(self._cluster, kind)
        room = max((Capacity(each).room(bundle, most) for each in several), default=1)
        return room or int(may_differ(self._cluster, kind))

    def _kind_for(self, request: PlacementGroupFactory) -> NodeKind | None:
        """The first kind of which another node could come and has room for the largest bundle."""
        largest = _largest(request)
        for kind in self._cluster.offer:
            if self._left_of(kind) > 0 and self._room_on(kind, largest, 1):
                return kind
        return None

    def _left_of(self, kind: NodeKind) -> int:
        """The number of nodes of the kind that could still join."""
        count = self._there[kind.name] + self._asked[kind.name]
        return MANY if kind.most is None else kind.most - count

    def _add(self, kind: NodeKind, request: PlacementGroupFactory) -> str:
        """Add a node in thought; "" if it is not known what it would have. Such a node is thought
        to have room for one trial."""
        self._asked[kind.name] += 1
        several = list(resources_of(self._cluster, kind))
        largest = _largest(request)
        is_small = not any(Capacity(each).room(largest, 1) for each in several)
        if not several or (is_small and may_differ(self._cluster, kind)):
            self._more[kind.name] += 1
            return ""
        name = f"another-{sum(self._asked.values())}"
        self._cluster.join(name, several[0], kind=kind.name, hostname="", address="")
        return name

    def _remove(self, name: str) -> None:
        self._asked[self._cluster.nodes[name].kind] -= 1
        self._cluster.lose(name)


def _largest(request: PlacementGroupFactory) -> Mapping[str, float]:
    return max(request.bundles, key=lambda one: (one.get("GPU", 0), one.get("CPU", 0)))
