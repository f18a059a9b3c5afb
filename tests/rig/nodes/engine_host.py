"""A host of an engine that knows no worker: its agents are `fake_agent.py`."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil

from holdfast.runtime.engines.engine import EngineFailed, Invitation, Pipe
from tests.rig.workers.processes import PATIENCE_S

AGENT = "tests.rig.nodes.fake_agent"


class AgentLink:
    """The host's end of the link to a fake agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.facts: dict[str, Any] = {}

    async def meet(self) -> str:
        """Read what the agent says of itself. Returns its ticket."""
        self.facts = json.loads(await self.line())
        ticket: str = self.facts["ticket"]
        return ticket

    async def line(self, within_s: float = PATIENCE_S) -> str:
        """The next line; "" at the end."""
        async with asyncio.timeout(within_s):
            return (await self._reader.readline()).decode()

    def order(self, *words: object) -> None:
        self._writer.write(" ".join(map(str, words)).encode() + b"\n")

    def close(self) -> None:
        """The agent sees the end of its link, and ends."""
        self._writer.close()


class FakeHost:
    """Implements `EngineHost`; a test waits for what the engine tells."""

    def __init__(self, address: list[object]) -> None:
        self._address = address
        self.invited: dict[str, str] = {}  # the secrets, by ticket
        self.links: dict[str, AgentLink] = {}
        self.causes: dict[str, str] = {}
        self.told: list[str] = []
        self.warnings: list[str] = []
        self.refusal = ""
        self.cannot_invite = ""
        self.warned: list[tuple[str, float, str]] = []
        self._reads: list[asyncio.ReadTransport] = []
        self._changed = asyncio.Condition()
        self._group: asyncio.TaskGroup | None = None

    # -- EngineHost -----------------------------------------------------------------------------

    def invite(self, kind: str, *, over_pipe: bool) -> Invitation:
        if self.cannot_invite:
            raise EngineFailed(self.cannot_invite)
        ticket, secret = secrets.token_hex(4), secrets.token_hex(16)
        self.invited[ticket] = secret
        address = None if over_pipe else self._address
        line = json.dumps({"ticket": ticket, "secret": secret, "address": address})
        return Invitation(ticket=ticket, secret=line.encode() + b"\n")

    def attach(self, ticket: str, pipe: Pipe) -> None:
        assert ticket in self.invited
        assert self._group is not None
        self._group.create_task(self._talk(pipe))

    def gone(self, ticket: str, cause: str) -> None:
        assert ticket in self.invited
        assert ticket not in self.causes, f"{ticket} is gone twice"
        assert "\n" not in cause
        self.causes[ticket] = cause
        if ticket in self.links:
            self.links[ticket].close()
        self._notify()

    def leaving(self, ticket: str, seconds: float, why: str) -> None:
        self.warned.append((ticket, seconds, why))
        self._notify()

    def waits(self, text: str) -> None:
        self.told.append(text)
        self._notify()

    def tell(self, text: str) -> None:
        self.warnings.append(text)
        self._notify()

    def refused(self, text: str) -> None:
        assert not self.refusal, "it refuses twice"
        self.refusal = text
        self._notify()

    # -- what a test asks -----------------------------------------------------------------------

    @property
    def alive(self) -> list[AgentLink]:
        """The agents that have joined and are not gone."""
        return [link for ticket, link in self.links.items() if ticket not in self.causes]

    async def until(self, is_so: Any, within_s: float = PATIENCE_S) -> None:
        """Wait until `is_so()` is true; it is asked after each call of the engine."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(is_so)

    async def agents(self, count: int) -> list[AgentLink]:
        """Wait until exactly this many agents are there."""
        await self.until(lambda: len(self.alive) == count or self.refusal)
        assert not self.refusal, self.refusal
        return self.alive

    async def refusal_of(self) -> str:
        await self.until(lambda: bool(self.refusal))
        return self.refusal

    def assert_that_no_secret_shows(self) -> None:
        """No process of this machine has a secret in its arguments or environment."""
        for process in psutil.process_iter():
            for kind in ("cmdline", "environ"):
                try:
                    with open(f"/proc/{process.pid}/{kind}", "rb") as file:
                        shown = file.read().decode(errors="replace")
                except OSError:
                    continue
                found = [one for one in self.invited.values() if one in shown]
                assert not found, f"{kind} of {process} shows a secret"

    # -- the links ------------------------------------------------------------------------------

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = AgentLink(reader, writer)
        ticket = await link.meet()
        assert link.facts["secret"] == self.invited[ticket]
        self.links[ticket] = link
        self._notify()

    async def _talk(self, pipe: Pipe) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        reads, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(pipe.reads, "rb", 0))
        self._reads.append(reads)
        transport, flow = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(pipe.writes, "wb", 0)
        )
        await self.meet(reader, asyncio.StreamWriter(transport, flow, None, loop))

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        assert self._group is not None
        self._group.create_task(notify())

    @asynccontextmanager
    async def hosting(self) -> AsyncIterator[FakeHost]:
        async with asyncio.TaskGroup() as group:
            self._group = group
            yield self
        for link in self.links.values():
            link.close()
        for reads in self._reads:
            reads.close()


@asynccontextmanager
async def fake_host(address: str = "127.0.0.1") -> AsyncIterator[FakeHost]:
    """A host whose agents connect to a port of `address`."""
    hosts: list[FakeHost] = []

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hosts[0].meet(reader, writer)

    server = await asyncio.start_server(met, address, 0)
    port = server.sockets[0].getsockname()[1]
    hosts.append(FakeHost([address, port]))
    try:
        async with hosts[0].hosting() as host:
            yield host
    finally:
        server.close()
