"""The types of what the controller sends to a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.trial.resources import PlacementGroupFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTerms:
    """The terms on which several workers train one trial.

    `keeps_all_metrics`: rows have the metrics of every rank in addition to rank 0's.
    `refuses_clashes`: a report fails if two ranks have files of the same name.
    """

    keeps_all_metrics: bool = False
    refuses_clashes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Data that all workers of an experiment share; sent to them once, pickled, and never stored.

    `param_space` holds the user's objects that a trial's config refers to. `log_names` are the
    files in the trial's directory for its stdout and stderr. `echo`: output is also sent to the
    controller. `capture` is false only if the trial runs in the script's own process.
    `is_mirrored`: the storage is elsewhere. `group` is set if each trial has several workers.
    Unless it is `trusted`, no checkpoint is unpickled. `goals` are the metrics that a number, or
    several, that a function returns are the values of; none where Ray's name of it is used.
    """

    trainable: Any
    param_space: Mapping[str, Any]
    experiment_name: str
    experiment_dir: str
    storage: str
    working_dir: str
    chdir: bool = True
    log_names: tuple[str, str] = ("stdout", "stderr")
    echo: bool = True
    capture: bool = True
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    reuse_actors: bool = False
    preemption_grace_s: float = 5.0
    is_mirrored: bool = False
    group: GroupTerms | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True
    goals: Sequence[str] = ()


class RankNode(NamedTuple):
    """The node of one rank: its name, the address at which other nodes reach it, and the trial's
    GPUs there. Empty for ranks on the controller's machine, which meet at loopback."""

    name: str = ""
    address: str = ""
    gpus: Sequence[str] = ()


class Assignment(NamedTuple):
    """One attempt at a trial, as sent to the worker: plain values, a list on the wire.

    `checkpoint` is the folder in the trial's directory to resume from. `config` is plain
    (`holdfast.trial.values.to_plain`). `time_total_s` is the training time so far. `bundles` and
    `strategy` make the trial's PlacementGroupFactory; `cpus` is its sum of CPUs, or a rank's part
    of it. This worker is number `rank` of `world_size`. `nodes` has the node of each rank; none if
    all are on the controller's machine.
    """

    trial_id: str
    trial_name: str
    dirname: str
    attempt: int
    config: Any
    iteration: int
    time_total_s: float
    next_checkpoint: int
    checkpoint: str | None
    bundles: Sequence[Mapping[str, float]]
    strategy: str
    cpus: float
    gpus: Sequence[str] = ()
    sets_gpus: bool = False
    rank: int = 0
    world_size: int = 1
    nodes: Sequence[Sequence[Any]] = ()

    @property
    def own_bundle(self) -> Mapping[str, float]:
        """A rank's own bundle, which follows the coordinator's."""
        return self.bundles[1 + self.rank]

    @property
    def node(self) -> RankNode:
        """The node of this rank."""
        return RankNode(*self.nodes[self.rank]) if self.nodes else RankNode()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes of all ranks, rank 0's first; none on the controller's machine."""
        return tuple(dict.fromkeys(node[0] for node in self.nodes if node[0]))

    @property
    def node_rank(self) -> int:
        """The number of this rank's node among those of the trial."""
        return list(dict.fromkeys(self.rank_nodes)).index(self.rank_nodes[self.rank])

    @property
    def local_rank(self) -> int:
        """The number of this rank among those on its node."""
        return self.rank_nodes[: self.rank].count(self.rank_nodes[self.rank])

    @property
    def local_world_size(self) -> int:
        """The number of ranks on this rank's node."""
        return self.rank_nodes.count(self.rank_nodes[self.rank])

    @property
    def node_count(self) -> int:
        """The number of nodes that the ranks are on."""
        return len(set(self.rank_nodes))

    @property
    def rank_nodes(self) -> list[str]:
        """The node of each rank; "" is the controller's machine."""
        return [node[0] for node in self.nodes] or [""] * self.world_size

    @property
    def resources(self) -> PlacementGroupFactory:
        return PlacementGroupFactory(self.bundles, self.strategy)


class Machine(NamedTuple):
    """A machine that trials may run on: a list on the wire. `total` and `free` are amounts by the
    names of resources."""

    name: str
    hostname: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]


def parts_of(assignment: Assignment) -> list[Assignment]:
    """The assignment of each rank: its own bundle, which follows the coordinator's.

    All ranks of a node see the GPUs of all, as under torchrun: `LOCAL_RANK` says which to use.
    """
    bundles = assignment.bundles[1:]
    parts = [
        assignment._replace(rank=rank, world_size=len(bundles), cpus=bundle.get("CPU", 0))
        for rank, bundle in enumerate(bundles)
    ]
    return [
        part._replace(gpus=_gpus_seen(part) if bundle.get("GPU") else ())
        for part, bundle in zip(parts, bundles, strict=True)
    ]


def _gpus_seen(part: Assignment) -> Sequence[str]:
    return part.node.gpus if part.nodes else part.gpus
