"""`get_runtime_context()`: who runs this code, and with what."""

from __future__ import annotations

import os
import socket
from typing import Any

from holdfast.experiment.worker.holdings import gpus_used, resources_of
from holdfast.experiment.worker.session import Session, running


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
        """Whether this is a later attempt at the trial."""
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
