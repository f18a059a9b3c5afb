"""The resources for trials: detected, or as given to `init`; or the cluster they run on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.nodes.cluster_config import CLUSTERS, Cluster
from holdfast.experiment.nodes.cluster_uri import cluster_of_uri
from holdfast.experiment.worker.runtime_env import located
from holdfast.runtime.fleet.facts import detect_total, gpu_names_of
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import validated
from holdfast.trial.runtime_env import RuntimeEnv, runtime_env_of
from holdfast.unknown_keywords import explains_call


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResources:
    """Totals by resource name, the names of the GPUs, and the environment of every worker.

    With a `cluster`, trials run on its nodes, and the totals are those of the controller's
    machine. `enforces_memory`: no trial may use more memory than it requests; None if `init` was
    not called. `share`: experiments in other processes use this machine, too.
    """

    total: Mapping[str, float]
    gpu_names: tuple[str, ...] = ()
    environment: RuntimeEnv = field(default_factory=RuntimeEnv)
    debug: bool = False
    cluster: Cluster | None = None
    enforces_memory: bool | None = None
    share: bool = False


_given: list[MachineResources] = []
_INIT = "holdfast.init(runtime_env=...)"


@explains_call("holdfast.init")
def init(
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    cluster: Cluster | str | None = None,
    enforce_memory: bool = False,
    share: bool = False,
) -> None:
    """Set the resources of trials; without this call the machine's own CPUs, GPUs and memory are
    detected.

    `resources` are custom ones by name. In `runtime_env={"env_vars": {...}, "working_dir": ...}`,
    the variables are set in every worker and never stored in a file; the directory is the workers'
    working directory and the first entry of their import path. `local_mode` runs one trial at a
    time in the calling process, so that `breakpoint()` works. `cluster` names the machines that
    trials run on: an object of `holdfast.cluster`, or its URI (`"slurm://gpu?nodes=4"`). With
    `enforce_memory`, the kernel kills a trial that uses more than the `memory` that it requests.
    With `share`, experiments of all your scripts on this machine that say so use its resources
    together, and take turns; the environment variable HOLDFAST_SHARE (1 or 0) says it, too.

    Raises InvalidConfig for negative amounts, unknown keys, a missing directory, a cluster that
    does not exist in this form, and a second call without `shutdown()` unless
    `ignore_reinit_error`.
    """
    if _given:
        if ignore_reinit_error:
            return
        raise InvalidConfig("holdfast.init() was called already: call holdfast.shutdown() first")
    known = _cluster_of(cluster)
    if known is not None:
        _check_with_cluster(num_cpus, num_gpus, resources, local_mode=local_mode, share=share)
    total = detect_total()
    for name, amount in (("CPU", num_cpus), ("GPU", num_gpus)):
        if amount is not None:
            total[name] = amount
    total.update(resources or {})
    checked = validated(total, where="holdfast.init()")
    if checked.get("GPU", 0) % 1:
        raise InvalidConfig(
            f"holdfast.init(): num_gpus must be a whole number, not {checked['GPU']!r}; a trial "
            f"may ask for a part of one"
        )
    _given.append(
        MachineResources(
            total=checked,
            gpu_names=gpu_names_of(int(checked.get("GPU", 0))),
            environment=located(runtime_env_of(runtime_env, where=_INIT), where=_INIT),
            debug=local_mode,
            cluster=known,
            enforces_memory=enforce_memory,
            share=share,
        )
    )


def _cluster_of(given: object) -> Cluster | None:
    """The cluster that an argument of `init` names. Raises InvalidConfig."""
    if isinstance(given, str):
        return cluster_of_uri(given, os.environ, where="holdfast.init(cluster=...)")
    if given is None or isinstance(given, CLUSTERS):
        return given
    raise InvalidConfig(
        f"holdfast.init(cluster={given!r:.100}): pass an object of holdfast.cluster, such as "
        f'holdfast.cluster.SSH(["node1", "node2"]), or a URI such as "slurm://gpu?nodes=4"'
    )


def _check_with_cluster(
    num_cpus: object, num_gpus: object, resources: object, *, local_mode: bool, share: bool
) -> None:
    """Refuse settings of this machine, on which no trial would run. Raises InvalidConfig."""
    if local_mode:
        raise InvalidConfig(
            "holdfast.init(local_mode=True) runs trials in this process: leave cluster out"
        )
    if share:
        raise InvalidConfig(
            "holdfast.init(cluster=...): trials run on the nodes of the cluster, not on this "
            "machine, so there is nothing to share: leave share out"
        )
    if num_cpus is not None or num_gpus is not None or resources:
        raise InvalidConfig(
            "holdfast.init(cluster=...): trials run on the nodes of the cluster, so set "
            "cpus_per_node, gpus_per_node and resources_per_node of the cluster, and leave "
            "num_cpus, num_gpus and resources out"
        )


def shutdown() -> None:
    """Undo `init` and remove the objects of `put`. Experiments end their processes themselves."""
    from holdfast.experiment.worker.objects import free_all

    _given.clear()
    free_all()


def is_initialized() -> bool:
    """Whether `init` was called and `shutdown` was not called since."""
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
    if cluster is None or known.cluster is not None or known.debug:
        return known
    found = cluster_of_uri(cluster, os.environ, where="the environment variable HOLDFAST_CLUSTER")
    return replace(known, cluster=found)
