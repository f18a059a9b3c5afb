"""`init()`: the resources for trials, or the cluster they run on."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.api.context import this_machine
from holdfast.compat.advice import explains_call
from holdfast.experiment.control import machine_resources
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.nodes.cluster_config import (
    AUTO,
    CLUSTERS,
    Cluster,
    Ray,
    Slurm,
    cluster_of_uri,
)
from holdfast.experiment.worker.script import located
from holdfast.runtime.fleet.facts import detect_total, gpu_names_of
from holdfast.trial.config import runtime_env_of
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import validated
from holdfast.version import VERSION

_INIT = "holdfast.init(runtime_env=...)"
_LOCAL = "local"
# The file in which a Ray that runs on this machine keeps its address.
_RUNNING_RAY = Path("/tmp/ray/ray_current_cluster")


class AlreadyInitialized(InvalidConfig, RuntimeError):
    """`init()` was called twice."""


class NoCluster(InvalidConfig, ConnectionError):
    """`init(address="auto")` found no cluster."""


class InitContext(Mapping[str, Any]):
    """What `init()` returns: a context manager that calls `shutdown()` at its end.

    `address_info` has `node_id` and `node_ip_address` of this machine, `address` and `gcs_address`
    ("local", or the kind of cluster), and `webui_url`, which is empty, as `dashboard_url` is: no
    server runs.
    """

    dashboard_url = ""

    def __init__(self, address: str) -> None:
        here = this_machine({}, {})
        self.python_version = platform.python_version()
        self.holdfast_version = VERSION
        self.address_info: dict[str, str] = {
            "node_ip_address": here.address,
            "node_id": here.name,
            "address": address,
            "gcs_address": address,
            "webui_url": self.dashboard_url,
        }

    def disconnect(self) -> None:
        """Call `shutdown()`."""
        shutdown()

    def __enter__(self) -> InitContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def __getitem__(self, name: str) -> str:
        """As in `address_info`."""
        return self.address_info[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __repr__(self) -> str:
        return f"InitContext(address={self.address_info['address']!r})"


@explains_call("holdfast.init")
def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    object_store_memory: int | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    include_dashboard: bool | None = None,
    dashboard_host: str = "127.0.0.1",
    dashboard_port: int | None = None,
    job_config: Any = None,
    configure_logging: bool = True,
    logging_level: int | str = "info",
    logging_format: str | None = None,
    logging_config: Any = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    enable_resource_isolation: bool = False,
    cgroup_path: str | None = None,
    system_reserved_cpu: float | None = None,
    system_reserved_memory: int | None = None,
    proxy_server_url: str | None = None,
    cluster: Cluster | str | None = None,
    enforce_memory: bool = False,
    share: bool = False,
    **private: Any,
) -> InitContext:
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

    `address` is Ray's word for `cluster`: None is this machine, or HOLDFAST_CLUSTER; "local" is
    this machine in any case; "host:6379" and "ray://host:10001" are Ray clusters; other URIs are
    those of `cluster`. "auto" is the cluster that is here: HOLDFAST_CLUSTER, else the Slurm
    allocation that the script runs in, else the Ray cluster that runs on this machine.

    `log_to_driver=False` shows no output of workers; their files have it. `logging_level` is the
    level of the logger "holdfast". The other parameters of Ray's `init`, and private ones such as
    `_temp_dir`, have no meaning here: one line on stderr names those that are ignored.

    Raises InvalidConfig for negative amounts, unknown keys, a missing directory, a cluster that
    does not exist in this form, NoCluster if there is none for "auto", and AlreadyInitialized for
    a second call without `shutdown()` unless `ignore_reinit_error`.
    """
    known = _cluster_of(cluster) if address is None else _cluster_at(address, cluster)
    if machine_resources.is_given():
        if ignore_reinit_error:
            return InitContext(_named(machine_resources.host_resources().cluster))
        raise AlreadyInitialized(
            "holdfast.init() was called already: call holdfast.shutdown() first, or pass "
            "ignore_reinit_error=True"
        )
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
    environment = located(runtime_env_of(runtime_env, where=_INIT), where=_INIT)
    if logging_level != "info":
        _set_level(logging_level)
    machine_resources.give(
        MachineResources(
            total=checked,
            gpu_names=gpu_names_of(int(checked.get("GPU", 0))),
            environment=environment,
            debug=local_mode,
            cluster=known,
            stays_here=address == _LOCAL,
            enforces_memory=enforce_memory,
            share=share,
            echoes=log_to_driver is not False,
        )
    )
    _tell_ignored(
        labels=labels,
        object_store_memory=object_store_memory,
        include_dashboard=include_dashboard,
        dashboard_host=None if dashboard_host == "127.0.0.1" else dashboard_host,
        dashboard_port=dashboard_port,
        job_config=job_config,
        logging_format=logging_format,
        logging_config=logging_config,
        namespace=namespace,
        enable_resource_isolation=enable_resource_isolation,
        cgroup_path=cgroup_path,
        system_reserved_cpu=system_reserved_cpu,
        system_reserved_memory=system_reserved_memory,
        proxy_server_url=proxy_server_url,
        **private,
    )
    return InitContext(_named(known))


def shutdown(wait_for_processes: bool = False, **private: Any) -> None:
    """Undo `init` and remove the objects of `put`. Experiments end their processes themselves, so
    `wait_for_processes` changes nothing."""
    from holdfast.experiment.worker.objects import free_all

    machine_resources.forget()
    free_all()


def is_initialized() -> bool:
    """True if `init` was called and `shutdown` was not called since."""
    return machine_resources.is_given()


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


def _cluster_at(address: object, cluster: object) -> Cluster | None:
    """The cluster at an `address` as Ray has them; None for this machine. Raises InvalidConfig."""
    where = f"holdfast.init(address={address!r:.100})"
    if cluster is not None:
        raise InvalidConfig(f"{where}: address and cluster both name the cluster: pass one")
    if not isinstance(address, str) or not address:
        raise InvalidConfig(f"{where}: {_ADDRESSES}")
    if address == _LOCAL:
        return None
    if address == AUTO:
        return _cluster_here(where)
    if "://" in address:
        return cluster_of_uri(address, os.environ, where=where)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidConfig(f"{where}: {_ADDRESSES}")
    return Ray(address)


_ADDRESSES = (
    'an address is "auto", "local", "host:6379" or "ray://host:10001" for a Ray cluster, or a URI '
    'of cluster=, such as "slurm://gpu?nodes=4"'
)


def _cluster_here(where: str) -> Cluster:
    """What "auto" means. Raises NoCluster."""
    if uri := os.environ.get("HOLDFAST_CLUSTER"):
        return cluster_of_uri(uri, os.environ, where="the environment variable HOLDFAST_CLUSTER")
    if "SLURM_JOB_ID" in os.environ:
        return Slurm()
    if "RAY_ADDRESS" in os.environ or _RUNNING_RAY.exists():
        return Ray(AUTO)
    raise NoCluster(
        f"{where}: there is no cluster here: HOLDFAST_CLUSTER is not set, the script runs in no "
        f"Slurm allocation, and no Ray cluster runs on this machine. Leave address out to use "
        f"this machine, or name a cluster: cluster='ssh://node1,node2'"
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


def _named(cluster: Cluster | None) -> str:
    return _LOCAL if cluster is None else type(cluster).__name__.lower()


def _set_level(level: int | str) -> None:
    """Raises InvalidConfig for a level that `logging` does not have."""
    try:
        logging.getLogger("holdfast").setLevel(level.upper() if isinstance(level, str) else level)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"holdfast.init(logging_level={level!r:.100}): {error}") from error


def _tell_ignored(**given: Any) -> None:
    """One line that names those with a value that asks for something."""
    if names := [name for name, value in given.items() if value]:
        listed = ", ".join(names)
        has = "has" if len(names) == 1 else "have"
        print(f"holdfast: init() ignores {listed}, which {has} no meaning here", file=sys.stderr)
