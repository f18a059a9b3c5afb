"""An engine over the client of a cluster that runs already, such as Dask or Ray.

The client is in a process of its own (`client_process.py`), which knows members and tasks. This
side decides where agents start (`roster.py`), and starts the client again if it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.runtime.engines.client_process import ClientProcess
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.roster import Member, Roster
from holdfast.runtime.engines.seated import Times, none_started
from holdfast.runtime.stopped import Watched
from holdfast.runtime.wire import Message

# Imports, connection and the first list of members, on a busy machine with a slow disk.
OPEN_S = 60.0
_LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterClient:
    """What is special about one kind of cluster.

    `entry` is the `module:function` of the client's process, which gets `options`. `title` and
    `members` name the cluster and its members in messages. `keeps_agents`: whether agents live on
    when the client's process ends; others may linger for `lingers_s` seconds, so no client follows
    earlier. `resources` are those of its only kind of nodes.
    """

    kind: str
    title: str
    members: str
    entry: str
    options: Mapping[str, Any]
    keeps_agents: bool
    lingers_s: float = 1.0
    resources: Mapping[str, float] | None = None
    times: Times = Times()


def agent_options(
    python: Sequence[str], module: str, variables: Mapping[str, str] | None, times: Times
) -> dict[str, Any]:
    """What the client's process must know of agents, as a frame carries it: the arguments of an
    `AgentJob`."""
    return {
        "python": list(python),
        "module": module,
        "variables": dict(variables or {}),
        "answer_s": times.answer_s,
    }


class ClientEngine:
    """Implements `holdfast.runtime.engines.engine.Engine`: one agent on each machine of the
    cluster.

    It refuses when an agent was tried on every machine and none has ever worked. Otherwise it
    tries again, and says what it waits for.
    """

    def __init__(self, client: ClusterClient, *, environ: Mapping[str, str]) -> None:
        self._client = client
        self._environ = environ
        self._roster = Roster(client.kind, client.times.rest_s)
        self._process: ClientProcess | None = None
        self._former: list[ClientProcess] = []
        self._pause_s = self._client.lingers_s
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = False
        self._is_stopped = False
        self._waits = ""

    def offer(self) -> Offer:
        """One kind. A cluster may grow, so there is no limit."""
        return Offer(kinds=[NodeKind(name=self._client.kind, resources=self._client.resources)])

    async def open(self, host: EngineHost) -> None:
        """Connect to the cluster. Raises EngineFailed."""
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[str] = self._loop.create_future()
        self._closed: asyncio.Future[str] = self._loop.create_future()
        try:
            self._connect()
            async with asyncio.timeout(OPEN_S):
                fault = await self._opened
        except TimeoutError:
            fault = f"no connection within {OPEN_S:g} s"
        except OSError as error:
            fault = f"its client cannot be started: {error}"
        except asyncio.CancelledError:
            self.kill()
            raise
        if fault:
            self.kill()
            await self._end_process()
            raise EngineFailed(f"{self._client.title}: {fault}")

    def want(self, kind: str, count: int) -> None:
        """Raises ValueError for a kind that is not offered."""
        if kind != self._client.kind:
            raise ValueError(f"there are no nodes of the kind {kind!r}")
        if self._roster.wanted != count:
            self._roster.wanted = count
            self._plan()

    def ask(self, ticket: str) -> None:
        """The client hears of each end by itself."""

    def give_back(self, ticket: str) -> None:
        if self._roster.knows(ticket):
            self._roster.give_back(ticket)
            self._send(["end", ticket, "it was given back", self._client.times.end_s])
            self._plan()

    def processes(self) -> list[Watched]:
        if self._process is None or self._process.is_gone:
            return []
        return [Watched(self._process.pid, f"the client of {self._client.title}", self._replace)]

    def kill(self) -> None:
        """Kill the client's process. The cluster then drops tasks that have not begun, and agents
        end with their connection to the controller."""
        self._stop()
        if self._process is not None:
            self._process.kill()
            self._settle("")

    async def close(self, grace_s: float) -> str:
        """End all agents. Returns a warning that names those which may still run, or ""."""
        self._stop()
        warning = ""
        if self._process is not None:
            self._send(["close", float(grace_s)])
            try:
                async with asyncio.timeout(grace_s):
                    warning = await self._closed
            except TimeoutError:
                warning = f"{self._client.title}: its client does not answer"
                self._process.kill()
        elif self._roster.used:
            warning = f"{self._client.title}: its client is gone"
        await self._end_process()
        left = sorted(member.label for member in self._roster.used.values())
        self._drop_agents(warning or "the run was aborted")
        return f"{warning}. Agents may still run: {', '.join(left)}" if warning and left else ""

    def _stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- the client's process ---------------------------------------------------------------------

    def _connect(self) -> None:
        """Start the client's process. Raises OSError."""
        self._former = [process for process in self._former if not process.is_gone]
        self._process = ClientProcess(
            self._client.entry, self._on_message, self._on_ended, environ=self._environ
        )
        self._send(["open", dict(self._client.options)])

    def _reconnect(self) -> None:
        try:
            self._connect()
        except OSError as error:
            self._on_ended(f"cannot be started: {error}")

    def _replace(self, why: str) -> None:
        if self._process is not None:
            self._process.kill(f"was killed by holdfast: {why}")

    def _send(self, message: Message) -> None:
        if self._process is not None:
            self._process.send(message)

    async def _end_process(self) -> None:
        self._retire_process()
        while self._former:
            await self._former.pop().close()

    def _retire_process(self) -> None:
        if self._process is not None:
            self._former.append(self._process)
            self._process = None

    def _on_ended(self, cause: str) -> None:
        """The process has ended by itself. Try again, after a pause that becomes longer."""
        cause = f"its client {cause}"
        self._is_connected = False
        if not self._opened.done():
            self._opened.set_result(cause)
        elif self._is_stopped:
            self._settle(f"{self._client.title}: {cause}")
        else:
            self._retire_process()
            self._roster.know([])
            self._drop_agents(cause, but_begun=self._client.keeps_agents)
            self._say(f"{self._client.title}: {cause}. Next attempt in {self._pause_s:g} s")
            self._later(self._pause_s, self._reconnect)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _settle(self, warning: str) -> None:
        if not self._closed.done():
            self._closed.set_result(warning)

    def _on_message(self, message: Message) -> None:
        match message:
            case ["open"]:
                self._on_open()
            case ["failed", str() as text]:
                if not self._opened.done():
                    self._opened.set_result(printable(text))
                elif self._process is not None:
                    self._process.kill(f"has given up: {printable(text)}")
            case ["members", list() as members]:
                self._roster.know(Member(key=k, host=h, label=n) for k, h, n in members)
                self._plan()
            case ["began", str() as ticket] if self._roster.knows(ticket):
                self._roster.begin(ticket)
                self._plan()
            case ["ended", str() as ticket, str() as cause, bool() as worked]:
                if self._roster.knows(ticket):
                    self._gone(ticket, cause, worked)
                    self._plan()
            case ["leaving", str() as ticket, float() as seconds, str() as why]:
                if self._roster.knows(ticket):
                    self._host.leaving(ticket, seconds, printable(why))
            case ["closed", str() as warning]:
                self._settle(warning)
            case _:
                pass

    def _on_open(self) -> None:
        self._is_connected = True
        self._pause_s = self._client.lingers_s
        for ticket, member in self._roster.used.items():
            self._send(["adopt", ticket, member.key])
        if not self._opened.done():
            self._opened.set_result("")

    # -- agents -----------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Start what is due, and look again when more may be."""
        if self._is_stopped or not self._is_connected:
            return
        for member in self._roster.due(self._loop.time()):
            if not self._start(member):
                return
        due = self._roster.next_due(self._loop.time())
        if due is not None:
            self._later(due - self._loop.time(), self._plan)
        self._say(self._roster.missing(self._client.members))

    def _start(self, member: Member) -> bool:
        """Order an agent. Returns False if none can be invited any more."""
        try:
            invitation = self._host.invite(self._client.kind, over_pipe=False)
        except EngineFailed as error:
            self._refuse(str(error))
            return False
        self._roster.take(invitation.ticket, member, self._loop.time())
        self._send(["start", invitation.ticket, invitation.secret, member.key])
        return True

    def _gone(self, ticket: str, cause: str, worked: bool) -> None:
        cause = printable(f"{self._roster.used[ticket].label}: {cause}")
        self._roster.free(ticket, cause, self._loop.time(), worked=worked)
        self._host.gone(ticket, cause)
        if not self._is_stopped and (causes := self._roster.hopeless):
            self._refuse(none_started(causes))

    def _refuse(self, why: str) -> None:
        self._stop()
        self._host.refused(why)

    def _drop_agents(self, cause: str, *, but_begun: bool = False) -> None:
        for ticket in self._roster.used:
            if not (but_begun and self._roster.begun(ticket)):
                self._gone(ticket, cause, True)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, seconds), act)

    def _say(self, text: str) -> None:
        if text != self._waits:
            self._waits = text
            self._host.waits(text)
