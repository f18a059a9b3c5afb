"""Makes the engine of a cluster. An engine's module is imported only if its cluster is used."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import assert_never

from holdfast.experiment.nodes.cluster_config import (
    SSH,
    Cluster,
    Dask,
    Local,
    Ray,
    Slurm,
    words_of,
)
from holdfast.runtime.engines.engine import Engine
from holdfast.trial.errors import InvalidConfig


def engine_of(
    cluster: Cluster, *, machine: Mapping[str, float], gpu_names: Sequence[str]
) -> Engine:
    """The engine that supplies the nodes of `cluster`.

    `machine` are the resources of this machine, which agents on it share. Raises InvalidConfig,
    and ImportError if a package is missing.
    """
    match cluster:
        case Local():
            return _local(cluster, machine, gpu_names)
        case SSH():
            return _ssh(cluster)
        case Slurm() | Dask() | Ray():
            raise InvalidConfig(f"{type(cluster).__name__} is not available in this version")
        case _:
            assert_never(cluster)


def _ssh(cluster: SSH) -> Engine:
    from holdfast.runtime.engines.ssh import SSHEngine

    return SSHEngine(
        cluster.hosts,
        resources=cluster.resources() or None,
        python=words_of(cluster.python, ["python3"]),
        ssh=words_of(cluster.ssh, ["ssh"]),
    )


def _local(cluster: Local, machine: Mapping[str, float], gpu_names: Sequence[str]) -> Engine:
    from holdfast.runtime.engines.local import LocalEngine

    given = cluster.resources()
    share = {key: amount / cluster.agents for key, amount in machine.items() if key != "GPU"}
    gpus = int(given.get("GPU", len(gpu_names) // cluster.agents))
    resources = {**share, **given, **({"GPU": gpus} if gpus else {})}
    return LocalEngine(
        agents=cluster.agents,
        resources=resources,
        gpu_names=gpu_names,
        python=words_of(cluster.python, [sys.executable]),
    )
