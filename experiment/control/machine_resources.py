"""The resources for trials: detected, or as given to `init`; or the cluster they run on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from holdfast.dataclass import dataclass
from holdfast.runtime.fleet.facts import detect_total, gpu_names_of
from holdfast.trial.config import RuntimeEnv

if TYPE_CHECKING:
    from holdfast.experiment.nodes.cluster_config import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResources:
    """Totals by resource name, the names of the GPUs, and the environment of every worker.

    With a `cluster`, trials run on its nodes, and the totals are those of the controller's
    machine. `stays_here`: they run on this machine whatever HOLDFAST_CLUSTER says.
    `enforces_memory`: no trial may use more memory than it requests; None if `init` was not
    called. `share`: experiments in other processes use this machine, too. `echoes`: the output of
    workers is shown.
    """

    total: Mapping[str, float]
    gpu_names: tuple[str, ...] = ()
    environment: RuntimeEnv = field(default_factory=RuntimeEnv)
    debug: bool = False
    cluster: Cluster | None = None
    stays_here: bool = False
    enforces_memory: bool | None = None
    share: bool = False
    echoes: bool = True


_given: list[MachineResources] = []


def give(resources: MachineResources) -> None:
    """Use these from now on."""
    _given[:] = [resources]


def forget() -> None:
    """Detect them again from now on."""
    _given.clear()


def is_given() -> bool:
    """True if `give` was called, and `forget` was not called since."""
    return bool(_given)


def host_resources(cluster: str | None = None) -> MachineResources:
    """The resources given to `init`, or those detected.

    `cluster` is the URI of the environment variable HOLDFAST_CLUSTER, which counts unless `init`
    was called with a cluster. Raises InvalidConfig.
    """
    if _given:
        known = _given[0]
    else:
        total = detect_total()
        known = MachineResources(total=total, gpu_names=gpu_names_of(int(total.get("GPU", 0))))
    if cluster is None or known.cluster is not None or known.debug or known.stays_here:
        return known
    from holdfast.experiment.nodes.cluster_config import cluster_of_uri

    found = cluster_of_uri(cluster, os.environ, where="the environment variable HOLDFAST_CLUSTER")
    return replace(known, cluster=found)
