"""The machines and their resources, for scripts that ask: in the script, and in a trial."""

from __future__ import annotations

import os
import socket
from typing import Any

from holdfast.experiment.control.machine_resources import host_resources
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.worker.holdings import gpus_used, sums
from holdfast.experiment.worker.job import Machine
from holdfast.experiment.worker.session import running
from holdfast.experiment.workers.shared_capacity import free_of
from holdfast.experiment.workers.shared_nodes import of_process
from holdfast.runtime.fleet.facts import own_address


def cluster_resources() -> dict[str, float]:
    """The amounts that trials may hold at once, by the names of resources.

    On this machine: what `init` was given, or what was detected; works before `init`, too. With a
    cluster: the sum over the nodes that have joined; they join when an experiment starts, and
    before that it is empty. In a trial: what its run has.
    """
    return _with_nodes([(one, one.total) for one in machines()])


def available_resources() -> dict[str, float]:
    """The part of `cluster_resources()` that no trial holds at this moment.

    In the script: no trial of this process. In a trial: no trial of its run.
    """
    return _with_nodes([(one, one.free) for one in machines()])


def nodes() -> list[dict[str, Any]]:
    """A dict for each machine that trials may run on, with the keys that Ray's have: `NodeID` (its
    name), `Alive`, `NodeManagerHostname`, `NodeManagerAddress`, `Resources` and `Labels`."""
    return [
        {
            "NodeID": one.name,
            "NodeName": one.name,
            "Alive": True,
            "alive": True,
            "NodeManagerHostname": one.hostname,
            "NodeManagerAddress": one.address,
            "Resources": _with_nodes([(one, one.total)]),
            "Labels": {},
        }
        for one in machines()
    ]


def get_gpu_ids() -> list[int | str]:
    """The GPUs that this worker uses, by number, or by name where they have one; none outside a
    trial."""
    session = running()
    names = [] if session is None else gpus_used(session)
    return [int(name) if name.isdecimal() else name for name in names]


def machines() -> list[Machine]:
    """Those of this trial's run, or else those of this process. Raises InvalidConfig for a
    HOLDFAST_CLUSTER that is not valid."""
    session = running()
    if session is not None and session.is_here:
        return session.ask_machines()
    known = host_resources(Settings.read(os.environ).cluster)
    if known.cluster is not None:
        return of_process.machines()
    total = dict(known.total)
    return [this_machine(total, free_of(total))]


def this_machine(total: dict[str, float], free: dict[str, float]) -> Machine:
    host = socket.gethostname()
    return Machine(host, host, own_address(os.environ), total, free)


def _with_nodes(found: list[tuple[Machine, Any]]) -> dict[str, float]:
    """The sums, and for each machine the `node:ADDRESS` that Ray lists with them."""
    here = {f"node:{one.address}": 1.0 for one, _ in found if one.address}
    return {**sums(amounts for _, amounts in found), **here}
