"""The machines, and who runs this code and with what: for the script, and in a trial."""

from __future__ import annotations

import os
import socket
from typing import Any

from holdfast.experiment.control.machine_resources import host_resources
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.worker.context import gpus_used, resources_of, sums
from holdfast.experiment.worker.job import Machine
from holdfast.experiment.worker.session import Session, running
from holdfast.experiment.workers.shared_machines import of_process
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
    return [this_machine(total, of_process.free_here(total))]


def this_machine(total: dict[str, float], free: dict[str, float]) -> Machine:
    host = socket.gethostname()
    return Machine(host, host, own_address(os.environ), total, free)


def _with_nodes(found: list[tuple[Machine, Any]]) -> dict[str, float]:
    """The sums, and for each machine the `node:ADDRESS` that Ray lists with them."""
    here = {f"node:{one.address}": 1.0 for one, _ in found if one.address}
    return {**sums(amounts for _, amounts in found), **here}


class RuntimeContext:
    """Facts about this process: the worker of a trial, or the script.

    Ids are texts: the names of the node, the experiment and the trial.
    """

    def __init__(self, session: Session | None) -> None:
        self._session = session

    def get_node_id(self) -> str:
        """The name of this machine in `nodes()`."""
        node = "" if self._session is None else self._session.assignment.node.name
        return node or socket.gethostname()

    def get_job_id(self) -> str:
        """In a trial the name of its experiment; in the script its host and pid."""
        return _script() if self._session is None else self._session.job.experiment_name

    def get_worker_id(self) -> str:
        """In a trial `<trial>.<attempt>.<rank>`; in the script its host and pid."""
        if self._session is None:
            return _script()
        told = self._session.assignment
        return f"{told.trial_id}.{told.attempt}.{told.rank}"

    def get_actor_id(self) -> str | None:
        """The worker's id; None in the script."""
        return None if self._session is None else self.get_worker_id()

    def get_actor_name(self) -> str | None:
        """The name of the trial; None in the script."""
        return None if self._session is None else self._session.assignment.trial_name

    def get_task_id(self) -> None:
        """None: there are no tasks."""

    def get_placement_group_id(self) -> None:
        """None: a trial's resources have no id of their own."""

    def get_assigned_resources(self) -> dict[str, float]:
        """The amounts that this worker holds; none in the script."""
        return {} if self._session is None else resources_of(self._session)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The GPUs that this worker uses."""
        return {"GPU": [] if self._session is None else gpus_used(self._session)}

    def get_node_labels(self) -> dict[str, str]:
        """Empty: machines have no labels."""
        return {}

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """True if this is a later attempt at the trial."""
        return self._session is not None and self._session.assignment.attempt > 1

    @property
    def namespace(self) -> str:
        """Empty: there are no namespaces."""
        return ""

    @property
    def gcs_address(self) -> str:
        """Empty: no server keeps the state of a cluster."""
        return ""

    @property
    def node_id(self) -> _Id:
        """As `get_node_id()`."""
        return _Id(self.get_node_id())

    @property
    def job_id(self) -> _Id:
        """As `get_job_id()`."""
        return _Id(self.get_job_id())

    @property
    def worker_id(self) -> _Id:
        """As `get_worker_id()`."""
        return _Id(self.get_worker_id())


class _Id(str):
    """A text that has the method of Ray's ids."""

    __slots__ = ()

    def hex(self) -> str:
        return self.encode().hex()


class _GlobalWorker:
    """What scripts read of `ray.worker.global_worker`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(get_runtime_context(), name.removeprefix("current_"))


global_worker = _GlobalWorker()


def get_runtime_context() -> RuntimeContext:
    """Facts about the process that calls this: a worker of a trial, or the script."""
    session = running()
    return RuntimeContext(session if session is None or session.is_here else None)


def _script() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
