"""The engine for a Dask cluster that runs already: an agent on each machine with a Dask worker.

Tasks start the agents; Dask's own client is in a process of its own (`dask_client.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from holdfast.runtime.engines.agent_job import AGENT
from holdfast.runtime.engines.client_engine import ClientEngine, ClusterClient, agent_options
from holdfast.runtime.engines.dask_address import refusal
from holdfast.runtime.engines.engine import EngineFailed, EngineHost
from holdfast.runtime.engines.seated import Times

# Of a Security object: what a client needs. Its values are paths, or the certificates themselves.
_SECURITY = (
    "require_encryption",
    "tls_ca_file",
    "tls_ciphers",
    "tls_client_cert",
    "tls_client_key",
)


class DaskEngine(ClientEngine):
    """Starts agents as tasks of a Dask cluster, one for each machine that has a worker.

    Machines are told apart by the host in their workers' addresses. Workers that join later are
    used while nodes are missing.
    """

    def __init__(
        self,
        cluster: object,
        *,
        resources: Mapping[str, float] | None = None,
        security: object = None,
        insecure: bool = False,
        offers: Mapping[str, float] | None = None,
        variables: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        python: Sequence[str] = (),
        module: str = AGENT,
        times: Times | None = None,
    ) -> None:
        """`cluster` is the scheduler's address (`tls://host:8786`), the path of its scheduler
        file, a `distributed.Client`, or a cluster object of Dask.

        `resources` are Dask's abstract resources that a worker must have (`dask worker --resources
        holdfast=1`) and that the agent's task takes. `security` is a `distributed.Security`; by
        default that of the client, else of Dask's configuration. `insecure` allows connections
        without TLS: everyone on the network could then read the agents' invitations. `offers`
        are the resources that each node has, if they are not detected.
        `python` is the command of the agents' interpreter, that of the worker if it is empty, and
        `variables` are set in the environment of agents. `environ` is that of Dask's client.

        Raises TypeError for another `cluster`.
        """
        times = times or Times()
        address, own_security = _where(cluster)
        self._refusal = refusal(address, insecure=insecure)
        options = {
            "address": address,
            "resources": dict(resources or {}),
            "security": _fields(security or own_security),
            "insecure": insecure,
            "agent": agent_options(python, module, variables, times),
            "topic": f"holdfast-{uuid4().hex}",
        }
        client = ClusterClient(
            kind="dask",
            title=f"Dask at {address}",
            members="Dask workers",
            entry="holdfast.runtime.engines.dask_client:serve",
            options=options,
            keeps_agents=True,
            resources=offers,
            times=times,
        )
        super().__init__(client, environ=os.environ if environ is None else environ)

    async def open(self, host: EngineHost) -> None:
        """Connect to the scheduler. Raises EngineFailed."""
        if self._refusal:
            raise EngineFailed(self._refusal)
        await super().open(host)


def _where(cluster: Any) -> tuple[str, object]:
    """The scheduler's address, and the security of a client or cluster object."""
    if isinstance(cluster, (str, os.PathLike)):
        return os.fspath(cluster), None
    scheduler = getattr(cluster, "scheduler", None)
    for address in (
        getattr(cluster, "scheduler_address", None),
        getattr(scheduler, "address", None),
    ):
        if isinstance(address, str) and address:
            return address, getattr(cluster, "security", None)
    raise TypeError(
        f"not the address of a Dask scheduler, a connected Client or a cluster: {cluster!r:.200}"
    )


def _fields(security: object) -> dict[str, Any]:
    found = {name: getattr(security, name, None) for name in _SECURITY}
    return {name: value for name, value in found.items() if isinstance(value, (str, bool))}
