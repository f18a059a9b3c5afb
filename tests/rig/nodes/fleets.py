"""Fleets for tests: an engine whose nodes are agents here, and a host that remembers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from holdfast.runtime.connection import Link
from holdfast.runtime.engines.engine import Engine, EngineHost, Invitation, NodeKind, Offer, Pipe
from holdfast.runtime.fleet.facts import PROTOCOL, FleetSettings, NodeFacts, Shared
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.fleet.handshake import TlsCall, decode_invitation, python_version
from holdfast.runtime.launcher import describe_code
from holdfast.runtime.process_exits import Watched, on_end, reaped
from holdfast.runtime.wire import Message
from holdfast.version import VERSION
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.processes import PATIENCE_S, Heard, no_process_is_left


class Agents:
    """An engine: each node is an agent, a child of this process."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        over_pipe: bool = False,
        inherited_fds: tuple[int, ...] = (),
        noise: bytes = b"",
        change: Callable[[Invitation], Invitation] = lambda invitation: invitation,
    ) -> None:
        """`noise` is what a login shell prints first. `change` changes the invitations."""
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.given_back: list[str] = []
        self._environ = environ
        self._over_pipe = over_pipe
        self._inherited = inherited_fds
        self._noise = noise
        self._change = change
        self._host: EngineHost | None = None

    @property
    def agent(self) -> subprocess.Popen[bytes]:
        """The only agent."""
        (found,) = self.started.values()
        return found

    def offer(self) -> Offer:
        return Offer(kinds=[NodeKind(name="here", resources={"CPU": 2.0}, most=1)])

    async def open(self, host: EngineHost) -> None:
        self._host = host

    def want(self, kind: str, count: int) -> None:
        while len(self.started) < count:
            self._start(kind)

    def ask(self, ticket: str) -> None: ...

    def give_back(self, ticket: str) -> None:
        self.given_back.append(ticket)

    def processes(self) -> list[Watched]:
        return []

    def kill(self) -> None:
        for process in self.started.values():
            process.kill()

    async def close(self, grace_s: float) -> str:
        told = [await reaped(process, grace_s) for process in self.started.values()]
        return "; ".join(filter(None, told))

    def _start(self, kind: str) -> None:
        assert self._host is not None
        invitation = self._change(self._host.invite(kind, over_pipe=self._over_pipe))
        command = [sys.executable, "-m", "holdfast.agent", "-"]
        if self._noise:
            command = [
                "sh",
                "-c",
                f'printf %s "{self._noise.decode()}"; exec "$@"',
                "sh",
                *command,
            ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if self._over_pipe else None,
            env=dict(self._environ),
            pass_fds=self._inherited,
            start_new_session=True,
        )
        ticket = invitation.ticket
        self.started[ticket] = process
        on_end(process, lambda: self._on_end(ticket, process))
        assert process.stdin is not None
        process.stdin.write(invitation.secret)
        process.stdin.flush()
        if process.stdout is not None:
            ends = Pipe(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
            process.stdout.close()
            self._host.attach(ticket, ends)
        process.stdin.close()

    def _on_end(self, ticket: str, process: subprocess.Popen[bytes]) -> None:
        assert self._host is not None
        self._host.gone(ticket, describe_code(process.wait()))


class FleetLog:
    """A host that remembers what happened, in order, and lets a test wait for it."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.nodes: dict[str, NodeFacts] = {}
        self.told: list[str] = []
        self._news = asyncio.Event()

    def node_joined(self, node: NodeFacts) -> None:
        self.nodes[node.name] = node
        self._add("joined", node.name)

    def node_leaving(self, name: str, seconds: float, why: str) -> None:
        self._add("leaving", name, seconds, why)

    def node_left(self, name: str, cause: str) -> None:
        self._add("left", name, cause)

    def no_node_left(self, why: str) -> None:
        self._add("none left", why)

    def on_answer(self, name: str, message: Message) -> None:
        if message == ["invalid"]:
            raise ValueError("an invalid answer")
        self._add("answer", name, message)

    def waits(self, text: str) -> None:
        self._add("waits", text)

    def tell(self, text: str) -> None:
        self.told.append(text)
        self._news.set()

    def _add(self, *event: object) -> None:
        self.events.append([*event])
        self._news.set()

    def on_exit(self, heard: Heard) -> None:
        """Remember the exit of this worker, too."""
        heard.exiting.add_done_callback(lambda _: self._add("exit"))

    async def until(self, kind: str, *details: object) -> Message:
        """The first event of this kind, with these details; waits for it if necessary."""
        wanted = [kind, *details]
        await self._until(lambda: any(event[: len(wanted)] == wanted for event in self.events))
        return next(event for event in self.events if event[: len(wanted)] == wanted)

    async def told_about(self, text: str) -> str:
        """The first warning with this text."""
        await self._until(lambda: any(text in one for one in self.told))
        return next(one for one in self.told if text in one)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._news.clear()
                await self._news.wait()


E = TypeVar("E", bound=Engine)


@asynccontextmanager
async def open_fleet(
    engine: E, settings: FleetSettings | None = None, shared: Shared | None = None
) -> AsyncIterator[tuple[Fleet, FleetLog, E]]:
    """A fleet that is closed at the end; no process of it is left. The test opens it."""
    with no_process_is_left():
        log = FleetLog()
        usual = settings or FleetSettings(grace_s=2.0)
        fleet = Fleet(engine, log, tasks=free_tasks(), settings=usual, shared=shared)
        try:
            yield fleet, log, engine
        finally:
            await fleet.close()


class Invitations:
    """An engine that starts nothing: a test takes the invitations and plays the agents."""

    def __init__(self, most: int = 1, *, over_pipe: bool = False) -> None:
        self.invitations: list[Invitation] = []
        self.given_back: list[str] = []
        self.asked: list[str] = []
        self.host: EngineHost | None = None
        self._most = most
        self._over_pipe = over_pipe

    def offer(self) -> Offer:
        return Offer(kinds=[NodeKind(name="here", most=self._most)])

    async def open(self, host: EngineHost) -> None:
        self.host = host

    def want(self, kind: str, count: int) -> None:
        assert self.host is not None
        while len(self.invitations) < count:
            self.invitations.append(self.host.invite(kind, over_pipe=self._over_pipe))

    def ask(self, ticket: str) -> None:
        self.asked.append(ticket)

    def give_back(self, ticket: str) -> None:
        self.given_back.append(ticket)

    def processes(self) -> list[Watched]:
        return []

    def kill(self) -> None: ...

    async def close(self, grace_s: float) -> str:
        return ""


def hello(ticket: str, token: bytes, **other: object) -> dict[str, object]:
    """How an agent introduces itself that has this invitation."""
    facts = {
        "protocol": PROTOCOL,
        "version": VERSION,
        "python": python_version(),
        "ticket": ticket,
        "token": token,
        "hostname": "played.example",
        "address": "127.0.0.1",
        "pid": 4711,
        "resources": {"CPU": 1.0},
        "gpus": [],
        "disk_free_bytes": 1 << 30,
    }
    return {**facts, **other}


class PlayedAgent:
    """The agent's end of a connection, played by a test."""

    def __init__(self, link: Link, ticket: str, token: bytes) -> None:
        self.link = link
        self.ticket, self.token = ticket, token
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        link.begin(self._messages.put_nowait, self._close)

    def _close(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)

    def greet(self, **other: object) -> None:
        self.link.send(["hello", hello(self.ticket, self.token, **other)])

    async def join(self, **other: object) -> str:
        """Become a node. Returns its name."""
        self.greet(**other)
        welcome, load = await self.message(), await self.message()
        assert (welcome[0], load[0]) == ("welcome", "load")
        self.link.send(["loaded", ""])
        return str(welcome[1])

    async def message(self) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            return await self._messages.get()

    async def end(self) -> str:
        """Why the connection has ended."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self.closed)


def play(invitation: Invitation) -> PlayedAgent:
    """Connect to the controller over TLS, as the agent that is invited."""
    invited = decode_invitation(invitation.secret)
    return PlayedAgent(TlsCall(invited).link(), invited.ticket, invited.token)


class Cable:
    """A relay to a port, which can stop carrying anything without closing a connection."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self._is_cut = False
        self._ends: list[asyncio.StreamWriter] = []

    async def lay(self) -> int:
        """Listen. Returns the port."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        self._is_cut = True

    async def remove(self) -> None:
        self._server.close()
        for end in self._ends:
            end.close()

    async def _carry(self, reads: asyncio.StreamReader, writes: asyncio.StreamWriter) -> None:
        there_reads, there_writes = await asyncio.open_connection(*self.target)
        self._ends += [writes, there_writes]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(reads, there_writes))
            group.create_task(self._pump(there_reads, writes))

    async def _pump(self, reads: asyncio.StreamReader, writes: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reads.read(1 << 16):
                if not self._is_cut:
                    writes.write(data)
        if not self._is_cut:
            writes.close()
