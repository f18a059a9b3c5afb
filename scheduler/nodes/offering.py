"""Judges whether a request can ever be placed on the nodes that a cluster may have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.names import listed
from holdfast.scheduler.nodes.arranging import has_room
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.trial.resources import NodeKind, PlacementGroupFactory

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
