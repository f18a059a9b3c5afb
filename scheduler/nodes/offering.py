"""Judges whether a request can ever be placed on the nodes that a cluster may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.scheduler.nodes.arranging import has_room
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.trial.resources import NodeKind, PlacementGroupFactory


def may_fit(cluster: Cluster, request: PlacementGroupFactory) -> bool:
    """Whether the bundles would fit if all nodes had joined and nothing else ran.

    Nodes of one kind are alike: the first that joins shows what the others have. While a kind has
    shown nothing and says nothing, everything may fit.
    """
    if request == cluster.fitted or not all(is_known(cluster, kind) for kind in cluster.offer):
        return True
    imagined = Cluster(cluster.offer)
    for kind, resources, most in _shapes(cluster):
        # More nodes than bundles are of no use.
        for _ in range(min(len(request.bundles), most)):
            name = f"node-{len(imagined.nodes)}"
            imagined.join(name, resources, kind=kind, hostname="", address="")
    fits = has_room(imagined, request)
    if fits:
        cluster.fitted = request
    return fits


def is_known(cluster: Cluster, kind: NodeKind) -> bool:
    """Whether it is known what nodes of this kind have."""
    return kind.resources is not None or kind.name in cluster.learned


def offer_text(cluster: Cluster) -> str:
    """What the cluster can have, for an error message."""
    return ", ".join(
        f"{kind.name!r} nodes with {' or '.join(str(dict(each)) for each in every) or 'nothing'}"
        f"{'' if kind.most is None else f' (at most {kind.most:,})'}"
        for kind in cluster.offer
        for every in [list(resources_of(cluster, kind))]
    )


def _shapes(cluster: Cluster) -> Iterator[tuple[str, Mapping[str, float], int]]:
    """The nodes that can be there: kind, resources, how many."""
    offered = {kind.name for kind in cluster.offer}
    for kind in cluster.offer:
        for resources in resources_of(cluster, kind):
            yield kind.name, resources, 1_000_000 if kind.most is None else kind.most
    for name in cluster.learned.keys() - offered:
        for node in cluster.nodes.values():
            if node.kind == name:
                yield name, node.resources, 1


def resources_of(cluster: Cluster, kind: NodeKind) -> Iterator[Mapping[str, float]]:
    """What nodes of the kind should have, and what those had that joined."""
    if kind.resources is not None:
        yield kind.resources
    for resources in cluster.learned.get(kind.name, ()):
        if resources != kind.resources:
            yield resources
