"""Makes the engine of a cluster. An engine's module is imported only if its cluster is used."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from holdfast.dataclass import dataclass
from holdfast.experiment.nodes.cluster_config import (
    SSH,
    Cluster,
    Count,
    Dask,
    Local,
    NodeTerms,
    Ray,
    Slurm,
    span_of,
    words_of,
)
from holdfast.experiment.nodes.packing import without_storage
from holdfast.runtime.engines.engine import ALL_NODES, Engine, EngineFailed, NodeKind, Offer
from holdfast.runtime.tasks import TaskScope
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    from holdfast.runtime.engines.slurm.allocation import Allocation
    from holdfast.runtime.engines.supplied import Times

_SLURM_FOLDER = "~/.holdfast/slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEngine:
    """An engine that is not open yet, and what it offers. `least` and `most` are the numbers of
    nodes that the user wants; between them, a node without work is given back after `idle_s`
    seconds. Agents find out themselves how much their node has of `detects`, unless the offer says
    so. `queues`: a node may come after hours in a queue."""

    offer: Offer
    least: int
    most: int
    idle_s: float = math.inf
    make: Callable[[TaskScope], Engine]
    detects: Sequence[str] = ("CPU", "GPU", "memory")
    queues: bool = False

    @property
    def is_elastic(self) -> bool:
        """True if the number of nodes follows the queue."""
        return self.least < self.most and len(self.offer.kinds) == 1

    def most_of(self, kind: NodeKind) -> int | None:
        """How many nodes of this kind there can be; None if no limit is known."""
        if kind.most is None:
            return None if self.most == ALL_NODES else self.most
        return min(kind.most, self.most)


def engine_of(
    cluster: Cluster,
    *,
    machine: Mapping[str, float],
    gpu_names: Sequence[str],
    environ: Mapping[str, str],
) -> PlannedEngine:
    """The engine that supplies the nodes of `cluster`.

    `machine` are the resources of this machine, which agents on it share. `environ` is that of
    the script. Raises InvalidConfig,
    and ImportError if a package is missing.
    """
    match cluster:
        case Local():
            engine = _local(cluster, machine, gpu_names, without_storage(environ))
            return replace(_made(engine, cluster, cluster.agents), detects=("memory",))
        case SSH():
            return _ssh(cluster)
        case Slurm():
            return _slurm(cluster, without_storage(environ))
        case Dask():
            return _made(_dask(cluster), cluster, cluster.nodes or ALL_NODES)
        case Ray():
            return _made(_ray(cluster), cluster, cluster.nodes or ALL_NODES)
        case _:
            assert_never(cluster)


def _made(engine: Engine, terms: NodeTerms, nodes: Count) -> PlannedEngine:
    least, most = span_of(nodes)
    return PlannedEngine(
        offer=engine.offer(),
        least=least,
        most=most,
        idle_s=terms.idle_s,
        make=lambda _: engine,
    )


def _ssh(cluster: SSH) -> PlannedEngine:
    from holdfast.runtime.engines.ssh import SSHEngine

    try:
        engine = SSHEngine(
            cluster.hosts,
            resources=cluster.resources() or None,
            python=words_of(cluster.python, ["python3"]),
            ssh=words_of(cluster.ssh, ["ssh"]),
            variables=_variables(cluster),
            times=_times(cluster),
        )
    except ValueError as error:  # a host that no ssh could reach
        raise InvalidConfig(f"SSH(hosts=...): {error}") from error
    return _made(engine, cluster, cluster.nodes or len(cluster.hosts))


def _local(
    cluster: Local,
    machine: Mapping[str, float],
    gpu_names: Sequence[str],
    environ: Mapping[str, str],
) -> Engine:
    from holdfast.runtime.engines.command_engine import LocalEngine

    given = cluster.resources()
    _, agents = span_of(cluster.agents)
    share = {key: amount / agents for key, amount in machine.items() if key != "GPU"}
    # So that a trial of one CPU runs anywhere: this engine is for trying a script out.
    share["CPU"] = max(1.0, share["CPU"] // 1)
    gpus = int(given.get("GPU", len(gpu_names) // agents))
    resources = {**share, **given, **({"GPU": gpus} if gpus else {})}
    return LocalEngine(
        agents=agents,
        resources=resources,
        gpu_names=gpu_names,
        python=words_of(cluster.python, [sys.executable]),
        variables=_variables(cluster),
        environ=environ,
        times=_times(cluster),
    )


def _dask(cluster: Dask) -> Engine:
    from holdfast.runtime.engines.client_engine import DaskEngine

    try:
        return DaskEngine(
            cluster.scheduler,
            insecure=cluster.insecure,
            offers=cluster.resources() or None,
            python=words_of(cluster.python, ()),
            variables=_variables(cluster),
            times=_times(cluster),
        )
    except TypeError as error:
        raise InvalidConfig(f"Dask(...): {error}") from error


def _ray(cluster: Ray) -> Engine:
    """Agents reserve CPUs and GPUs in Ray, if the user names them. Ray may not know the names of
    custom resources."""
    from holdfast.runtime.engines.client_engine import RayEngine

    offers = cluster.resources()
    return RayEngine(
        cluster.address,
        insecure=cluster.insecure,
        resources={name: offers[name] for name in ("CPU", "GPU") if name in offers},
        offers=offers or None,
        python=words_of(cluster.python, ()),
        variables=_variables(cluster),
        times=_times(cluster),
    )


def _times(terms: NodeTerms) -> Times:
    from holdfast.runtime.engines.supplied import Times

    return Times(answer_s=terms.start_s)


def _variables(terms: NodeTerms) -> dict[str, str]:
    """What an agent reads from its environment."""
    from holdfast.experiment.nodes.agent_main import SCRATCH_ROOT

    return {SCRATCH_ROOT: terms.scratch} if terms.scratch else {}


def _slurm(cluster: Slurm, environ: Mapping[str, str]) -> PlannedEngine:
    """The nodes of the allocation that the script runs in, or jobs of their own: inside an
    allocation, too, if a setting is one of jobs."""
    from holdfast.runtime.engines.slurm.allocation import allocation_in

    try:
        allocation = None if _asks_for_jobs(cluster) else allocation_in(environ)
        if allocation is not None:
            return _slurm_steps(cluster, allocation, environ)
        return _slurm_jobs(cluster, environ)
    except EngineFailed as error:
        raise InvalidConfig(str(error)) from error


def _asks_for_jobs(cluster: Slurm) -> bool:
    given = (cluster.partition, cluster.account, cluster.time, cluster.memory_per_node)
    return bool(cluster.options) or any(setting is not None for setting in given)


def _slurm_steps(
    cluster: Slurm, allocation: Allocation, environ: Mapping[str, str]
) -> PlannedEngine:
    from holdfast.runtime.engines.slurm.allocation import SlurmAllocation, offer_of

    there = len(allocation.nodes)
    least, most = span_of(cluster.nodes or there)
    if least > there:
        raise InvalidConfig(
            f"Slurm(nodes={cluster.nodes}): the allocation {allocation.job}, in which this script "
            f"runs, has {there}. Ask for fewer, or set partition= or time= to submit jobs"
        )
    resources = cluster.resources() or None
    return PlannedEngine(
        offer=offer_of(allocation, most, resources),
        least=least,
        most=min(most, there),
        idle_s=cluster.idle_s,
        make=lambda tasks: SlurmAllocation(
            allocation,
            tasks=tasks,
            python=words_of(cluster.python, [sys.executable]),
            most=most,
            resources=resources,
            environ={**environ, **_variables(cluster)},
            times=_times(cluster),
        ),
    )


def _slurm_jobs(cluster: Slurm, environ: Mapping[str, str]) -> PlannedEngine:
    from holdfast.runtime.engines.slurm.commands import SlurmTerms
    from holdfast.runtime.engines.slurm.login import SlurmLogin, SlurmTimes

    if cluster.nodes is None:
        raise InvalidConfig("Slurm(...): say how many nodes: nodes=4, or nodes=(1, 4)")
    least, most = span_of(cluster.nodes)
    cpus = cluster.cpus_per_node
    if cpus is not None and cpus != int(cpus):
        raise InvalidConfig(f"Slurm(cpus_per_node={cpus!r}): Slurm has whole CPUs only")
    terms = SlurmTerms(
        nodes=most,
        python=words_of(cluster.python, [sys.executable]),
        folder=os.path.abspath(os.path.expanduser(cluster.folder or _SLURM_FOLDER)),
        resources=cluster.resources() or None,
        partition=cluster.partition or "",
        account=cluster.account or "",
        time=cluster.time or "",
        memory=cluster.memory_per_node or "",
        cpus=None if cpus is None else int(cpus),
        gpus=cluster.gpus_per_node,
        options=tuple(cluster.options),
        variables=_variables(cluster),
    )
    return PlannedEngine(
        offer=terms.offer,
        least=least,
        most=most,
        idle_s=cluster.idle_s,
        make=lambda tasks: SlurmLogin(
            terms, tasks=tasks, environ=environ, times=SlurmTimes(answer_s=cluster.start_s)
        ),
        queues=True,
    )
