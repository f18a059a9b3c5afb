"""The engine for a Ray cluster that runs already: an agent on each node.

Actors start the agents; Ray's own client is in a process of its own (`ray_client.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast.runtime.engines.agent_job import AGENT
from holdfast.runtime.engines.client_engine import ClientEngine, ClusterClient, agent_options
from holdfast.runtime.engines.engine import EngineFailed, EngineHost
from holdfast.runtime.engines.seated import Times

# What Ray itself takes for yes.
_YES = {"1", "true"}
# After the end of a driver its actors are killed at once; a server of Ray Client waits 30 s for
# its client to come back (RAY_CLIENT_RECONNECT_GRACE_PERIOD).
_LINGERS_S = 1.0
_CLIENT_LINGERS_S = 35.0
# Under `uv run`, Ray would pack the working directory and send it to each node.
_QUIET = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_IGNORE_UNHANDLED_ERRORS": "1"}


class RayEngine(ClientEngine):
    """Starts agents as actors of a Ray cluster, one on each node. Nodes that join later are used
    while nodes are missing."""

    def __init__(
        self,
        address: str = "auto",
        *,
        resources: Mapping[str, float] | None = None,
        insecure: bool = False,
        offers: Mapping[str, float] | None = None,
        variables: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        python: Sequence[str] = (),
        module: str = AGENT,
        times: Times | None = None,
    ) -> None:
        """`address` is that of the head node (`host:6379`, from a machine of the cluster), of its
        Ray Client server (`ray://host:10001`, from anywhere), or "auto" for the cluster of this
        machine.

        `resources` are what each agent takes of its node, by Ray's names (`{"CPU": 8, "GPU":
        1}`); nodes that have less are not used. Without them an agent takes nothing from Ray.
        `offers` are the resources that each node has for trials, by default `resources`; what
        they do not name is detected.

        `insecure` allows a cluster without TLS (RAY_USE_TLS): everyone on the network could then
        read the agents' invitations. `python` is the command of the agents' interpreter, that of
        Ray's workers if it is empty, and `variables` are set in the environment of agents.
        `environ` is that of Ray's client.
        """
        times = times or Times()
        environ = dict(os.environ if environ is None else environ)
        self._refusal = "" if insecure else refusal(address, environ)
        options = {
            "address": address,
            "resources": dict(resources or {}),
            "agent": agent_options(python, module, variables, times),
        }
        client = ClusterClient(
            kind="ray",
            title=f"Ray at {address}",
            members="Ray nodes",
            entry="holdfast.runtime.engines.ray_client:serve",
            options=options,
            keeps_agents=False,
            lingers_s=_CLIENT_LINGERS_S if address.startswith("ray://") else _LINGERS_S,
            resources=(resources or None) if offers is None else offers,
            times=times,
        )
        super().__init__(client, environ={**_QUIET, **environ})

    async def open(self, host: EngineHost) -> None:
        """Connect to the cluster. Raises EngineFailed."""
        if self._refusal:
            raise EngineFailed(self._refusal)
        await super().open(host)


def refusal(address: str, environ: Mapping[str, str]) -> str:
    """Why a cluster is refused, and what to do; "" if it uses TLS. A client that uses it gets no
    connection to a cluster that does not."""
    if environ.get("RAY_USE_TLS", "").lower() in _YES:
        return ""
    return (
        f"Ray at {address} has no TLS, so everyone on its network could read the invitations of "
        f"agents and take part in the run. Start the cluster and this script with RAY_USE_TLS=1 "
        f"and certificates (https://docs.ray.io/en/latest/ray-core/configure.html), or allow it "
        f"with insecure=True (insecure=1 in a URI)"
    )
