"""`holdfast nodes`: the nodes of an experiment's cluster, and what runs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.browse.condition import Condition
from holdfast.experiment.browse.locate import LocatedExperiment
from holdfast.experiment.folder.nodes_file import NodeBeat, read_news
from holdfast.scheduler.nodes.cluster import FormerNode, Node
from holdfast.scheduler.placement import Placement

RUN_ENDED = "its run has ended"


class NodeState(StrEnum):
    """The state of a node."""

    HERE = "here"
    LEAVING = "leaving"  # it has announced its end: no trial starts there
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNode:
    """One node; docs/command.md describes the fields."""

    name: str
    kind: str
    hostname: str
    address: str
    resources: Mapping[str, float]
    joined_at: float | None
    heard_at: float | None
    state: NodeState = NodeState.LEFT
    cause: str = ""
    held: Mapping[str, float] = field(default_factory=dict)
    trials: tuple[str, ...] = ()
    left_at: float | None = None
    disk_free_bytes: int | None = None
    is_earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """The nodes in the order in which they joined, then those that have left, the newest last.

    `most` is how many there can be, None if there is no limit. `is_cluster` is false if all trials
    run on one machine. `waiting` says which nodes a live run waits for, and where; "" for none.
    """

    name: str
    path: str
    state: Condition
    holder: str
    is_cluster: bool
    most: int | None
    waiting: str
    nodes: tuple[ListedNode, ...]

    @property
    def here(self) -> list[ListedNode]:
        """Those that are there, also if they are leaving."""
        return [node for node in self.nodes if node.state is not NodeState.LEFT]

    @property
    def left(self) -> list[ListedNode]:
        """Those that have left."""
        return [node for node in self.nodes if node.state is NodeState.LEFT]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def node_list(experiment: LocatedExperiment, *, now: float) -> NodeList:
    """Reads the records, and the file with the nodes' last beats.

    A run that was killed has no record of the end of its nodes, but their agents end with it.
    """
    machine, condition = experiment.machine, experiment.condition(now)
    cluster = machine.cluster
    former, nodes = dict(cluster.former), cluster.nodes
    if condition is not Condition.LIVE:
        former |= {name: FormerNode(was=node, cause=RUN_ENDED) for name, node in nodes.items()}
        nodes = {}
    news = read_news(experiment.read.layout or experiment.read.location)
    beats = news.beats
    here = (_here(name, node, machine.placement, beats.get(name)) for name, node in nodes.items())
    left = (_left(name, node, beats.get(name)) for name, node in former.items())
    most = [kind.most for kind in cluster.offer]
    return NodeList(
        name=experiment.name,
        path=experiment.shown,
        state=condition,
        holder=experiment.holder,
        is_cluster=bool(cluster),
        most=None if None in most or not most else sum(filter(None, most)),
        waiting=news.waiting if condition is Condition.LIVE else "",
        nodes=(*here, *left),
    )


def _here(name: str, node: Node, placement: Placement, beat: NodeBeat | None) -> ListedNode:
    return replace(
        _listed(name, node, beat),
        state=NodeState.LEAVING if node.leaving else NodeState.HERE,
        cause=node.why,
        held=_held(name, placement),
        trials=tuple(trial_id for trial_id, held in placement.holds.items() if held.is_on(name)),
        disk_free_bytes=None if beat is None else beat.disk_free_bytes,
    )


def _left(name: str, node: FormerNode, beat: NodeBeat | None) -> ListedNode:
    return replace(
        _listed(name, node.was, beat),
        cause=node.cause or ("" if node.left_at else RUN_ENDED),
        left_at=node.left_at or None,
        is_earlier=node.is_earlier,
    )


def _listed(name: str, node: Node, beat: NodeBeat | None) -> ListedNode:
    return ListedNode(
        name=name,
        kind=node.kind,
        hostname=node.hostname,
        address=node.address,
        resources=dict(node.resources),
        joined_at=node.joined_at or None,
        heard_at=None if beat is None else beat.at,
    )


def _held(name: str, placement: Placement) -> dict[str, float]:
    """What trials and idle workers hold of the node."""
    total: dict[str, float] = {}
    for held in (*placement.holds.values(), *placement.idle.values()):
        for place in held.places:
            if place.node == name:
                for key, amount in place.amounts.items():
                    total[key] = round(total.get(key, 0) + amount, 4)
    return total
