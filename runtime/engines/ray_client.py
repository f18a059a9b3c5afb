"""Ray's client, in the process of its own: what the engine's messages do to the cluster.

A driver of Ray prints lines of its raylet, and ends its process when the cluster's GCS is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.compat import ray_path
from holdfast.dataclass import dataclass
from holdfast.runtime.engines.agent_job import Ending, RayAgent
from holdfast.runtime.engines.client_side import CALL_S, Refusal, Tell
from holdfast.runtime.engines.client_side import serve as serve_cluster
from holdfast.runtime.transport import Channel
from holdfast.text.errors import named, shortened

R = TypeVar("R")

# Ray tells no one about nodes that join.
_LOOK_S = 2.0
_LONGEST_CAUSE = 1000
# An actor's methods: one runs the agent, one waits for its begin, one ends it.
_THREADS = 4
# Of a node that is drained without a deadline.
_NO_DEADLINE_S = 60.0


def serve(channel: Channel) -> None:
    serve_cluster(channel, RayCluster())


@dataclass(slots=True, kw_only=True)
class _Agent:
    node: str
    actor: Any
    begun: bool = False


class RayCluster:
    """A Ray cluster: its nodes are the members, and an actor runs each agent."""

    async def open(self, options: Mapping[str, Any], tell: Tell) -> None:
        """Connect to a cluster that runs already. Raises Refusal."""
        self._tell, self._options = tell, options
        self._agents: dict[str, _Agent] = {}
        self._members: list[list[str]] = []
        self._leaving: set[str] = set()
        address = options["address"]
        await _reach(address)
        try:
            self._ray = await _call(lambda: _connect(address))
        except ImportError as error:
            raise Refusal(f"{error}. Install it with: pip install 'holdfast[ray]'") from error
        except TimeoutError as error:
            raise Refusal(f"no connection to {address} within {CALL_S:g} s") from error
        except Exception as error:  # of Ray, of any type
            raise Refusal(f"no connection to {address}: {_line(error)}") from error
        wanted = options["resources"]
        self._actor_options = {
            "num_cpus": wanted.get("CPU", 0),
            "num_gpus": wanted.get("GPU", 0),
            "resources": {k: v for k, v in wanted.items() if k not in {"CPU", "GPU", "memory"}},
            **({"memory": wanted["memory"]} if "memory" in wanted else {}),
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": _THREADS,
        }

    # -- members ----------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Tell the members, and each change of them, until cancelled. Raises TimeoutError if the
        cluster does not answer."""
        while True:
            self._look_at(await _call(self._ray.nodes), await _call(self._draining))
            await asyncio.sleep(_LOOK_S)

    def _look_at(self, nodes: list[dict[str, Any]], draining: Mapping[str, int]) -> None:
        members = [
            [node["NodeID"], node["NodeID"], label(node)]
            for node in sorted(nodes, key=lambda node: str(node["NodeID"]))
            if can_run(node, self._options["resources"]) and node["NodeID"] not in draining
        ]
        if members != self._members:
            self._members = members
            self._tell(["members", members])
        for ticket, agent in self._agents.items():
            if agent.node in draining and ticket not in self._leaving:
                self._leaving.add(ticket)
                seconds = seconds_left(draining[agent.node])
                self._tell(["leaving", ticket, seconds, "Ray drains the node"])

    def _draining(self) -> Mapping[str, int]:
        """The nodes that will be taken away, with the time in ms; none where Ray does not say."""
        try:
            found: Mapping[str, int] = self._ray._private.state.state.get_draining_nodes()
        except Exception:  # it is not public, and missing with ray://
            return {}
        return found

    # -- agents -----------------------------------------------------------------------------------

    async def run(self, ticket: str, secret: bytes, member: str) -> Ending:
        """Run an agent in an actor on this node."""
        agent = None
        try:
            actor = await _call(lambda: self._actor_on(member))
            agent = self._agents[ticket] = _Agent(node=member, actor=actor)
            options = self._options["agent"]
            has_gpus = self._actor_options["num_gpus"] > 0
            ended = await _call(lambda: actor.run.remote(ticket, secret, options, has_gpus))
            begun = await _call(lambda: actor.begun.remote(options["answer_s"]))
            asyncio.wrap_future(begun.future()).add_done_callback(
                lambda done: self._on_begun(ticket, done)
            )
            ending: Ending = await asyncio.wrap_future(ended.future())
            return ending
        except TimeoutError:
            raise
        except Exception as error:  # of Ray, of any type: the actor or its node is gone
            return self._why_lost(member, error), agent is not None and agent.begun
        finally:
            self._agents.pop(ticket, None)
            self._leaving.discard(ticket)
            if agent is not None:
                self._kill(agent.actor)

    async def adopt(self, ticket: str, member: str) -> Ending:
        """Ray ends the actors of a client that is gone."""
        return "its actor ended with Ray's client", True

    async def end(self, ticket: str, why: str, grace_s: float) -> None:
        """End an agent by a call of its actor; an actor that has not begun is killed."""
        agent = self._agents.get(ticket)
        if agent is not None and agent.begun:
            with suppress(Exception):  # the actor is gone
                await _call(lambda: agent.actor.end.remote(ticket, why, grace_s))
        elif agent is not None:
            self._kill(agent.actor)

    async def close(self) -> None:
        await _call(self._ray.shutdown)

    def _actor_on(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        made = self._ray.remote(RayAgent).options(
            **self._actor_options, scheduling_strategy=strategy
        )
        return made.remote()

    def _kill(self, actor: Any) -> None:
        with suppress(Exception):  # it is gone already
            self._ray.kill(actor)

    def _on_begun(self, ticket: str, done: asyncio.Future[bool]) -> None:
        agent = self._agents.get(ticket)
        if not done.cancelled() and done.exception() is None and done.result() and agent:
            agent.begun = True
            self._tell(["began", ticket])

    def _why_lost(self, node: str, error: Exception) -> str:
        text = _line(error)
        if "No module named 'holdfast" in text:
            text += ": the nodes need the same version of holdfast as this script"
        return f"Ray has lost its actor: {text}"


def label(node: Mapping[str, Any]) -> str:
    """A node's name in messages."""
    host, address = node.get("NodeManagerHostname"), node.get("NodeManagerAddress")
    return f"the Ray node {host} ({address}, {str(node['NodeID'])[:8]})"


def can_run(node: Mapping[str, Any], wanted: Mapping[str, float]) -> bool:
    """Whether the node is there and has these resources, used or not."""
    has = node.get("Resources") or {}
    return bool(node.get("Alive")) and all(
        has.get(name, 0) >= amount for name, amount in wanted.items()
    )


def seconds_left(deadline_ms: int) -> float:
    """How long a node that is drained still has; Ray says 0 for "as long as it likes"."""
    from time import time

    return max(0.0, deadline_ms / 1000 - time()) if deadline_ms else _NO_DEADLINE_S


async def _reach(address: str) -> None:
    """Whether something listens there: Ray would take half a minute to find out, and ends the
    process. Raises Refusal."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdecimal():
        try:
            async with asyncio.timeout(CALL_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError as error:  # also a TimeoutError
            why = str(error) or "it does not answer"
            raise Refusal(f"no connection to {address}: {why}") from error
        writer.close()


def _connect(address: str) -> Any:
    ray_path.deactivate()
    import ray

    ray.init(address=address, namespace="holdfast", log_to_driver=False, logging_level="error")
    return ray


def _line(error: Exception) -> str:
    text = " ".join(named(error).split())
    return shortened(text, _LONGEST_CAUSE).replace("\n", " ")


async def _call(function: Callable[[], R]) -> R:
    """A call of Ray, in a thread because it may hang. Raises TimeoutError."""
    async with asyncio.timeout(CALL_S):
        return await asyncio.to_thread(function)
