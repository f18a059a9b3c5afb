"""Which rank runs on which node of a cluster, from the places of its trial's bundles.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import RankNode
from holdfast.trial.resources import Place


class NodeNames(Protocol):
    """What is known of a node."""

    @property
    def address(self) -> str: ...

    @property
    def gpus(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """The bundles of a trial in the order of its ranks, and the node of each rank.

    The first bundle is the coordinator's, or that of the only worker.
    """

    bundles: Sequence[Mapping[str, float]]
    nodes: Sequence[RankNode]


def seat_worker(
    bundles: Sequence[Mapping[str, float]],
    places: Sequence[Place],
    known: Mapping[str, NodeNames],
) -> Seating:
    """A trial of one worker, which runs where its first bundle is."""
    return Seating(bundles=bundles, nodes=[_node(places[0].node, places, known)])


def seat_ranks(
    bundles: Sequence[Mapping[str, float]],
    places: Sequence[Place],
    known: Mapping[str, NodeNames],
) -> Seating:
    """A trial with a rank for each bundle after the first.

    The ranks of a node have consecutive numbers, as under torchrun. The nodes keep the order of
    their first bundles.
    """
    order = list(dict.fromkeys(place.node for place in places[1:]))
    ranks = sorted(range(1, len(bundles)), key=lambda at: order.index(places[at].node))
    return Seating(
        bundles=[bundles[0], *(bundles[at] for at in ranks)],
        nodes=[_node(places[at].node, places[1:], known) for at in ranks],
    )


def _node(name: str, places: Sequence[Place], known: Mapping[str, NodeNames]) -> RankNode:
    """A node with all GPUs that the trial holds there."""
    found = known[name]
    held = {gpu for place in places if place.node == name for gpu in place.gpus}
    return RankNode(name, found.address, tuple(found.gpus[gpu] for gpu in sorted(held)))
