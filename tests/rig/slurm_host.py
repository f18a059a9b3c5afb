"""A host of Slurm's engine, which stores what happens, and lets a test wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from holdfast.runtime.engines.engine import Invitation, Pipe
from tests.rig.processes import PATIENCE_S


class Agent:
    """The connection to an agent that has joined."""

    def __init__(
        self, said: str, reads: asyncio.StreamReader, writes: asyncio.StreamWriter
    ) -> None:
        _, self.ticket, self.node, pid, cpus = said.split()
        self.pid, self.cpus = int(pid), int(cpus)
        self._reads, self._writes = reads, writes

    def order(self, text: str) -> None:
        self._writes.write(f"{text}\n".encode())

    async def says(self, within_s: float = PATIENCE_S) -> str:
        """Its next line; "" at the end of the connection."""
        async with asyncio.timeout(within_s):
            try:
                return (await self._reads.readline()).decode().strip()
            except ConnectionError:
                return ""

    def hang_up(self) -> None:
        self._writes.close()


class SlurmHost:
    """Invites agents to connect to a port of this process."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ends: dict[str, str] = {}
        self.said: list[str] = []
        self._invited = 0
        self._agents: asyncio.Queue[Agent] = asyncio.Queue()
        self._all: list[Agent] = []
        self._changed = asyncio.Event()
        self.refusals: list[str] = []
        self.leavings: dict[str, tuple[float, str]] = {}

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, self.address, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """No agent can connect from now on."""
        self._server.close()
        self.hang_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._server.wait_closed()

    def hang_up(self) -> None:
        """End all agents."""
        for agent in self._all:
            agent.hang_up()

    async def joined(self) -> Agent:
        """The next agent that has joined."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._agents.get()

    async def gone_of(self, ticket: str) -> str:
        """Why this job has ended."""
        await self._until(lambda: ticket in self.ends)
        return self.ends[ticket]

    async def waits_for(self, *words: str) -> str:
        """What the engine waits for, once that has all these words."""
        await self._until(lambda: bool(self.said) and all(w in self.said[-1] for w in words))
        return self.said[-1]

    async def has_said(self, words: str) -> None:
        """Wait until the engine has waited for something with these words, if only for a while."""
        await self._until(lambda: any(words in said for said in self.said))

    async def refused_with(self) -> str:
        """Why the engine can supply no nodes."""
        await self._until(lambda: bool(self.refusals))
        return self.refusals[-1]

    async def leaving_of(self, ticket: str, within_s: float) -> tuple[float, str]:
        """In how many seconds the job ends, and why."""
        await self._until(lambda: ticket in self.leavings, within_s)
        return self.leavings[ticket]

    async def _until(self, done: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(within_s):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    async def _connected(self, reads: asyncio.StreamReader, writes: asyncio.StreamWriter) -> None:
        said = (await reads.readline()).decode()
        if said:
            agent = Agent(said, reads, writes)
            self._all.append(agent)
            self._agents.put_nowait(agent)

    def invited_as(self, ticket: str) -> str:
        return ticket

    # -- EngineHost -------------------------------------------------------------------------------

    def invite(self, kind: str, *, over_pipe: bool) -> Invitation:
        assert kind == "slurm"
        self._invited += 1
        ticket = self.invited_as(f"t{self._invited}")
        where = "- 0" if over_pipe else f"{self.address} {self.port}"
        return Invitation(ticket=ticket, secret=f"{where} {ticket}\n".encode())

    def attach(self, ticket: str, pipe: Pipe) -> None:
        raise NotImplementedError

    def gone(self, ticket: str, cause: str) -> None:
        assert ticket not in self.ends, f"twice: {cause}"
        self.ends[ticket] = cause
        self._changed.set()

    def leaving(self, ticket: str, seconds: float, why: str) -> None:
        assert ticket not in self.ends
        self.leavings[ticket] = seconds, why
        self._changed.set()

    def waits(self, text: str) -> None:
        self.said.append(text)
        self._changed.set()

    def refused(self, text: str) -> None:
        self.refusals.append(text)
        self._changed.set()
