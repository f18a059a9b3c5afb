"""Engines over the client of a cluster that runs already: Dask or Ray.

Tasks or actors start the agents. The clients hang, print, and end their process when their cluster
goes. They import hundreds of modules, and unpickle what the cluster's workers send. So each lives
in a process that the controller can kill (`dask_client.py`, `ray_client.py`), and talks to it in
frames. This side decides where agents start (`supply.py`), and starts the client again if it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.runtime.engines.agent_job import AGENT
from holdfast.runtime.engines.client_side import refusal
from holdfast.runtime.engines.command_engine import Times, none_started
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.supply import Member, Roster
from holdfast.runtime.process_control import Title
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import Service
from holdfast.runtime.wire import Message
from holdfast.text.errors import shortened

_LAST_LINES = 12
_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 500
# It is asked this often whether it lives, and killed if it did not answer three times.
ASK_S = 10.0
_MISSED = 3


class ClientProcess:
    """Runs `entry`, a `module:function` that takes a `Channel`, and keeps its last lines of
    output. `ended` is called once, on the loop, with the cause of its end."""

    def __init__(
        self,
        entry: str,
        on_message: Callable[[Message], None],
        ended: Callable[[str], None],
        *,
        environ: Mapping[str, str],
    ) -> None:
        """Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._ended = ended
        self._why = ""
        # Its imports may take long, so it is asked once it has said something.
        self._unanswered: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lines = _LastLines()
        try:
            self._service = Service(
                entry,
                self._receive,
                environ=environ,
                inherited_fds=[self._lines.writes],
                title=Title("cluster client", short="client"),
            )
        except OSError:
            self._lines.close()
            raise
        self._service.send(["output", self._lines.writes])
        self._lines.close_writing_end()
        self._service.ended.add_done_callback(self._on_ended)
        self._ask()

    @property
    def pid(self) -> int:
        return self._service.pid

    @property
    def is_gone(self) -> bool:
        return self._service.is_gone

    def send(self, message: Message) -> None:
        self._service.send(message)

    def kill(self, why: str = "") -> None:
        """Send SIGKILL; `ended` is called soon."""
        self._why = self._why or why
        self._service.kill(why)

    async def close(self) -> str:
        """End it without a call of `ended`. Returns a warning if it had to be killed, or ""."""
        self._forget()
        self._ended = _ignore
        return await self._service.close()

    def _receive(self, message: Message) -> None:
        self._unanswered = 0
        if message != ["alive"]:
            self._on_message(message)

    def _ask(self) -> None:
        if self._unanswered is not None:
            if self._unanswered >= _MISSED:
                self.kill(f"did not answer for {_MISSED * ASK_S:g} s and was killed by holdfast")
                return
            self._unanswered += 1
            self._service.send(["alive"])
        self._timer = self._loop.call_later(ASK_S, self._ask)

    def _on_ended(self, _: object) -> None:
        self._lines.read()
        self._forget()
        ended, self._ended = self._ended, _ignore
        lines = " | ".join(self._lines.last())
        ended(
            f"{self._why or 'ended'}. Its last lines: {lines}" if lines else self._why or "ended"
        )

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._lines.close()


class _LastLines:
    """The last lines that another process writes to a pipe."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reads, self.writes = os.pipe()
        os.set_blocking(self._reads, False)
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""
        self._loop.add_reader(self._reads, self.read)

    def last(self) -> list[str]:
        lines = [*self._lines, self._rest.decode(errors="replace")]
        return [shortened(line, _LONGEST_LINE) for line in lines if line.strip()]

    def read(self) -> None:
        """Read what has arrived."""
        while self._reads >= 0:
            try:
                data = os.read(self._reads, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._rest = self._rest[-_CHUNK_BYTES:]
            self._lines.extend(line.decode(errors="replace").rstrip() for line in lines)

    def close_writing_end(self) -> None:
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> None:
        self.close_writing_end()
        if self._reads >= 0:
            self._loop.remove_reader(self._reads)
            os.close(self._reads)
            self._reads = -1


def _ignore(_: str) -> None:
    """The end of a process that was closed."""


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
        self._refusal = "" if insecure else ray_refusal(address, environ)
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


def ray_refusal(address: str, environ: Mapping[str, str]) -> str:
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
