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
from holdfast.runtime.engines.engine import ALL_NODES, EngineFailed, EngineHost, NodeKind
from holdfast.runtime.engines.supplied import SuppliedEngine, Times
from holdfast.runtime.engines.supply import Backoff, Place
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterClient:
    """What is special about one kind of cluster.

    `entry` is the `module:function` of the client's process, which gets `options`. `title` and
    `members` name the cluster and its members in messages. `keeps_agents`: whether agents live on
    when the client's process ends; others may linger for `lingers_s` seconds, so no client follows
    earlier. `resources` are those of its only kind of nodes. `refusal`: why the cluster is not
    used; "" if it is.
    """

    kind: str
    title: str
    members: str
    entry: str
    options: Mapping[str, Any]
    keeps_agents: bool
    refusal: str = ""
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


class ClientEngine(SuppliedEngine):
    """One agent on each machine of the cluster."""

    def __init__(self, client: ClusterClient, *, environ: Mapping[str, str]) -> None:
        """There is one kind of nodes. A cluster may grow, so there is no limit."""
        super().__init__(
            [NodeKind(name=client.kind, resources=client.resources)], (), client.times
        )
        self._client = client
        self._environ = environ
        self._process: ClientProcess | None = None
        self._former: list[ClientProcess] = []
        self._backoff = Backoff(least_s=client.lingers_s)
        self._reconnecting: asyncio.TimerHandle | None = None
        # Why there is no connection; "" if there is one.
        self._cut = ""

    async def open(self, host: EngineHost) -> None:
        """Connect to the cluster. Raises EngineFailed."""
        if self._client.refusal:
            raise EngineFailed(self._client.refusal)
        await super().open(host)
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

    def start_agent(self, place: Place, secret: bytes) -> None:
        self._send(["start", place.ticket, secret, place.member])

    def end_agent(self, place: Place) -> None:
        self._send(["end", place.ticket, "it was given back", self.times.end_s])

    def missing(self) -> str:
        wanted = self._supply.wanted.get(self._client.kind, 0)
        if self._cut or not wanted:
            return self._cut
        used, failed = self._supply.used, self._supply.failing
        queued = sorted(place.label for place in used if not place.has_begun)
        # If all nodes are wanted, the first one is enough to begin.
        wanted = wanted if wanted < ALL_NODES else 1
        lacking = wanted - len(used) - sum(not place.ticket for place in failed)
        more = f"{lacking} more machine{'s' * (lacking > 1)} with {self._client.members}"
        return "; ".join(
            [
                *(f"{label} has not started its agent yet" for label in queued),
                *(place.retry_text for place in failed),
                *([more] * (lacking > 0)),
            ]
        )

    def processes(self) -> list[Watched]:
        if self._process is None or self._process.is_gone:
            return []
        return [Watched(self._process.pid, f"the client of {self._client.title}", self._replace)]

    def kill(self) -> None:
        """Kill the client's process. The cluster then drops tasks that have not begun, and agents
        end with their connection to the controller."""
        self.stop()
        if self._process is not None:
            self._process.kill()
            self._end_closing("")

    async def close(self, grace_s: float) -> str:
        """End all agents. Returns a warning that names those which may still run, or ""."""
        self.stop()
        warning = ""
        if self._process is not None:
            self._send(["close", float(grace_s)])
            try:
                async with asyncio.timeout(grace_s):
                    warning = await self._closed
            except TimeoutError:
                warning = f"{self._client.title}: its client does not answer"
                self._process.kill()
        elif self._supply.used:
            warning = f"{self._client.title}: its client is gone"
        await self._end_process()
        left = sorted(place.label for place in self._supply.used)
        self._drop_agents(warning or "the run was aborted")
        return f"{warning}. Agents may still run: {', '.join(left)}" if warning and left else ""

    def stop(self) -> None:
        super().stop()
        if self._reconnecting is not None:
            self._reconnecting.cancel()

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
        if not self._opened.done():
            self._opened.set_result(cause)
        elif self._is_stopped:
            self._end_closing(f"{self._client.title}: {cause}")
        else:
            self._retire_process()
            now = self._loop.time()
            self._backoff = self._backoff.after_failure(now, cause)
            pause_s = self._backoff.until - now
            self._cut = f"{self._client.title}: {cause}. Next attempt in {pause_s:g} s"
            self._supply.know(())
            self._drop_agents(cause, but_begun=self._client.keeps_agents)
            self.plan()
            self._reconnecting = self._loop.call_later(pause_s, self._reconnect)

    def _end_closing(self, warning: str) -> None:
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
                kind = self._client.kind
                self._supply.know(
                    Place(name=host, kind=kind, member=key, label=label)
                    for key, host, label in members
                )
                self.plan()
            case [_, str() as ticket, *_] if (place := self._supply.of(ticket)) is not None:
                self._on_agent(place, message)
            case ["closed", str() as warning]:
                self._end_closing(warning)
            case _:
                pass

    def _on_agent(self, place: Place, message: Message) -> None:
        match message:
            case ["began", _]:
                place.has_begun = True
                self.plan()
            case ["ended", _, str() as cause, bool() as worked]:
                self._end(place, cause, worked=worked)
            case ["leaving", ticket, float() as seconds, str() as why]:
                self._host.leaving(ticket, seconds, printable(why))
            case _:
                pass

    def _on_open(self) -> None:
        self._cut = ""
        self._backoff = self._backoff.after_success()
        for place in self._supply.used:
            self._send(["adopt", place.ticket, place.member])
        if not self._opened.done():
            self._opened.set_result("")

    def _end(self, place: Place, cause: str, *, worked: bool) -> None:
        self.ended(place, printable(f"{place.label}: {cause}"), worked=worked)

    def _drop_agents(self, cause: str, *, but_begun: bool = False) -> None:
        for place in self._supply.used:
            if not (but_begun and place.has_begun):
                self._end(place, cause, worked=True)


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
            refusal=refusal(address, insecure=insecure),
            resources=offers,
            times=times,
        )
        super().__init__(client, environ=os.environ if environ is None else environ)


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
            refusal="" if insecure else ray_refusal(address, environ),
            lingers_s=_CLIENT_LINGERS_S if address.startswith("ray://") else _LINGERS_S,
            resources=(resources or None) if offers is None else offers,
            times=times,
        )
        super().__init__(client, environ={**_QUIET, **environ})


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
