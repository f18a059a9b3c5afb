"""Dask's client, in the process of its own: what the engine's messages do to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.agent_job import Ending
from holdfast.runtime.engines.client_side import CALL_S, Refusal, Tell, refusal, remedy
from holdfast.runtime.engines.client_side import serve as serve_cluster
from holdfast.runtime.tasks import happens
from holdfast.runtime.transport import Channel
from holdfast.text.errors import named

# The scheduler unpickles the task, too, and need not have holdfast: so the task is `eval`.
_RUN = "__import__('holdfast.runtime.engines.agent_job', fromlist=['run_in_dask']).run_in_dask"
_RUN += "(ticket, invitation, topic, agent)"
_END = (
    "__import__('holdfast.runtime.engines.agent_job', fromlist=['end_in_dask'])"
    ".end_in_dask(ticket, why, grace_s)"
)
# Workers change without an event, as when one is paused for its memory, and a lost connection is
# none, either.
_LOOK_S = 10.0
# From the order to retire a worker to its end; distributed waits 30 s for its threads.
_RETIRED_S = 20.0


def serve(channel: Channel) -> None:
    serve_cluster(channel, DaskCluster())


@dataclass(slots=True, kw_only=True)
class _Agent:
    """`ended` is done with its end; with None if only the task's state says it."""

    worker: str
    ended: asyncio.Future[Ending | None]
    begun: bool = False


class DaskCluster:
    """A Dask cluster: its workers are the members, and a task runs each agent."""

    async def open(self, options: Mapping[str, Any], tell: Tell) -> None:
        """Connect. Raises Refusal."""
        self._tell, self._options = tell, options
        self._agents: dict[str, _Agent] = {}
        self._members: list[list[str]] = []
        self._reasons: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._client = await self._connect()
        address = self._client.scheduler.address
        if why := refusal(address, insecure=options["insecure"]):
            raise Refusal(why)
        self._client.subscribe_topic("all", self._on_event)
        self._client.subscribe_topic(options["topic"], self._on_agent_event)

    async def _connect(self) -> Any:
        try:
            from distributed import Client, Security
        except ImportError as error:
            raise Refusal(f"{error}. Install it with: pip install 'holdfast[dask]'") from error
        address = self._options["address"]
        where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
        security = Security(**self._options["security"]) if self._options["security"] else None
        try:
            return await Client(
                **where, security=security, asynchronous=True, timeout=CALL_S, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            raise Refusal(f"no connection to {address}: {error}{remedy(address)}") from error

    # -- members ----------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Tell the members, and each change of them, until cancelled. Raises ConnectionError if
        the scheduler has closed the connection, TimeoutError if it does not answer."""
        while True:
            await self._look()
            await happens(self._changed, _LOOK_S)
            self._changed.clear()

    async def _look(self) -> None:
        self._check()
        async with asyncio.timeout(CALL_S):
            found = (await self._client.scheduler.identity())["workers"]
        members = [
            [address, str(one.get("host") or address), label(address, one)]
            for address, one in sorted(found.items())
            if can_run(one, self._options["resources"])
        ]
        if members != self._members:
            self._members = members
            self._tell(["members", members])
        for agent in self._agents.values():
            if agent.worker not in found:
                self._end_of(agent, self._why_lost(agent.worker, "it is not there any more"))

    def _check(self) -> None:
        """Its client cancels all tasks when the connection ends. Raises ConnectionError."""
        if self._client.status != "running":
            raise ConnectionError("the scheduler has closed the connection")

    def _on_event(self, event: tuple[float, Any]) -> None:
        """What the scheduler tells about its workers."""
        match event[1]:
            case {"action": "remove-worker", "worker": str() as worker, **facts}:
                how = "as ordered" if facts.get("expected") else "its connection ended"
                for agent in self._agents.values():
                    if agent.worker == worker:
                        self._end_of(agent, self._why_lost(worker, how))
                self._changed.set()
            case {"action": "add-worker" | "retire-workers"}:
                self._changed.set()
            case _:
                pass

    def _on_worker_event(self, worker: str, event: tuple[float, Any]) -> None:
        match event[1]:
            case {"action": "closing-worker", "reason": reason}:
                self._leaving(worker, f"it closes: {reason}")
            case {"action": "worker-status-change", "status": "closing_gracefully"}:
                self._leaving(worker, "it is retired")
            case _:
                pass

    def _leaving(self, worker: str, why: str) -> None:
        if worker not in self._reasons:
            self._reasons[worker] = why
            for ticket, agent in self._agents.items():
                if agent.worker == worker:
                    self._tell(["leaving", ticket, _RETIRED_S, f"the Dask worker: {why}"])

    def _why_lost(self, worker: str, how: str) -> Ending:
        return f"the worker left the Dask cluster: {self._reasons.get(worker, how)}", True

    # -- agents -----------------------------------------------------------------------------------

    async def run(self, ticket: str, secret: bytes, member: str) -> Ending:
        """Run an agent in a task of this worker. A task of a lost worker stays pending, so it is
        cancelled."""
        facts = {"ticket": ticket, "invitation": BytesIO(secret)}
        facts |= {name: self._options[name] for name in ("agent", "topic")}
        task = self._client.submit(
            eval,
            _RUN,
            facts,
            key=f"holdfast-agent-{ticket}",
            workers=[member],
            allow_other_workers=False,
            resources=self._options["resources"] or None,
            pure=False,
            retries=0,
        )
        agent = self._watched(ticket, member)
        loop = asyncio.get_running_loop()
        task.add_done_callback(lambda _: loop.call_soon_threadsafe(self._end_of, agent, None))
        ending = await agent.ended
        if ending is None:
            self._check()
            ending = await _cause_of(task), False
        self._forget(ticket)
        await self._cancel(task)
        return ending

    async def adopt(self, ticket: str, member: str) -> Ending:
        """Wait for the end of an agent whose task an earlier client submitted."""
        agent = self._watched(ticket, member)
        agent.begun = True
        async with asyncio.timeout(CALL_S):
            past = await self._client.get_events(self._options["topic"])
        for event in past:
            self._on_agent_event(event)
        self._changed.set()
        ending = await agent.ended
        self._forget(ticket)
        return ending or ("its task is over", True)

    async def end(self, ticket: str, why: str, grace_s: float) -> None:
        """End an agent by a call of its worker; a task that has not begun is cancelled."""
        agent = self._agents.get(ticket)
        if agent is None:
            return
        order = {"ticket": ticket, "why": why, "grace_s": grace_s}
        with suppress(Exception):  # a worker that does not answer; its agent ends by itself
            async with asyncio.timeout(CALL_S):
                await self._client.run(
                    eval, _END, order, workers=[agent.worker], on_error="ignore"
                )
        if not agent.begun:
            self._end_of(agent, (why, False))

    async def close(self) -> None:
        for topic in ("all", self._options["topic"]):
            self._client.unsubscribe_topic(topic)
        await self._client.close(timeout=CALL_S)

    def _watched(self, ticket: str, worker: str) -> _Agent:
        ended = asyncio.get_running_loop().create_future()
        agent = self._agents[ticket] = _Agent(worker=worker, ended=ended)
        self._client.subscribe_topic(worker, partial(self._on_worker_event, worker))
        return agent

    def _forget(self, ticket: str) -> None:
        worker = self._agents.pop(ticket).worker
        self._client.unsubscribe_topic(worker)
        self._reasons.pop(worker, None)
        self._changed.set()

    async def _cancel(self, task: Any) -> None:
        if task.status == "pending":
            async with asyncio.timeout(CALL_S):
                await self._client.cancel([task], force=True)

    def _on_agent_event(self, event: tuple[float, Any]) -> None:
        """What a task says about its agent."""
        match event[1]:
            case ["began" | "ended" as what, str() as ticket, *facts] if ticket in self._agents:
                agent = self._agents[ticket]
                if what == "ended":
                    self._end_of(agent, (str(facts[0]), bool(facts[1])))
                elif not agent.begun:
                    agent.begun = True
                    self._tell(["began", ticket])
            case _:
                pass

    def _end_of(self, agent: _Agent, ending: Ending | None) -> None:
        if not agent.ended.done():
            agent.ended.set_result(ending)


def label(address: str, worker: Mapping[str, Any]) -> str:
    """A worker's name in messages."""
    name = str(worker.get("name") or address)
    return f"the Dask worker {name}" if name == address else f"the Dask worker {name} ({address})"


def can_run(worker: Mapping[str, Any], resources: Mapping[str, float]) -> bool:
    """Whether the worker takes tasks, and has the abstract resources, used or not."""
    has = worker.get("resources") or {}
    # "init" until a moment after it has joined.
    takes_tasks = worker.get("status", "running") in {"init", "running"}
    return takes_tasks and all(has.get(name, 0) >= amount for name, amount in resources.items())


async def _cause_of(task: Any) -> str:
    """Why a task is over, from its state."""
    if task.status == "finished":
        return str(await task)
    if task.status != "error":
        return "Dask has cancelled its task"
    text = named(await task.exception())
    if "No module named 'holdfast" in text:
        text += ": the workers need the same version of holdfast as this script"
    return f"the agent could not be started: {text}"
