"""The launcher over agents, one on each node of a cluster, and the owner of the cluster's engine.

Only a node's connection and its lease decide whether the node is lost; the engine adds the cause.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, assert_never

from holdfast.late import LATE_S
from holdfast.runtime.connection import LARGEST, Link, end_if_silent
from holdfast.runtime.engines.engine import Engine, EngineFailed, Invitation, Pipe
from holdfast.runtime.errors import LaunchFailed, NoNodes, WireError
from holdfast.runtime.fleet import messages
from holdfast.runtime.fleet.delivery import InThread, SharedFile, at_once, deliver
from holdfast.runtime.fleet.facts import (
    GIVEN_BACK,
    FleetHost,
    FleetSettings,
    LastMessage,
    NodeFacts,
    Shared,
    free_name,
    gpu_names_of,
    host_name,
)
from holdfast.runtime.fleet.handshake import Admission, Ticket
from holdfast.runtime.fleet.messages import Hello, Unloadable
from holdfast.runtime.launcher import (
    NOTHING_SAID,
    ExitCause,
    Grant,
    Listener,
    WorkerHandle,
    short_cause,
)
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.tasks import Suspension, TaskScope, happens
from holdfast.runtime.wire import Message


class RemoteWorker(WorkerHandle):
    """A worker of a `Fleet`. Its `pid` is what its node's kernel says, unique on that node only:
    0 until the worker has sent a message."""

    def __init__(self, name: str, listener: Listener, send: Callable[[Message], None]) -> None:
        """`send` sends a message to its node."""
        super().__init__(name, listener)
        self._send = send

    def send(self, message: Message) -> None:
        self._order("send", message)

    def kill(self, why: str) -> None:
        self._order("kill", why)

    def signal(self, signum: int) -> None:
        self._order("signal", int(signum))

    def _order(self, name: str, what: object) -> None:
        if not self.is_gone:
            self._send([name, self.name, what])

    def deliver(self, message: Message) -> None:
        """Give a message of the worker to its listener; an invalid one is its last."""
        if self._broken or self.is_gone:
            return
        try:
            self._listener.on_message(message)
        except WireError as error:
            self.on_broken(str(error))


# So many messages of its service may arrive before the node can run workers.
MOST_EARLY = 1000
# So many warnings of one node are shown.
MOST_WARNINGS = 100


class Node:
    """One agent. Messages of workers that have exited are ignored."""

    def __init__(self, facts: NodeFacts, ticket: Ticket, link: Link, owner: Fleet) -> None:
        self.facts = facts
        self.ticket = ticket
        self.link = link
        self.disk_free_bytes = facts.disk_free_bytes
        self.is_joined = self.is_leaving = self.is_ending = self.is_refused = False
        self.end_cause = GIVEN_BACK  # the reason of the order to end
        # What the engine says about the end of the agent's job.
        self.job_ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # What its service has said before it was joined.
        self.early: list[Message] = []
        self._owner = owner
        # When the bytes arrived whose heartbeat was answered.
        self._answered_s = -1.0
        self._warnings = 0
        self._workers: dict[str, RemoteWorker] = {}
        link.hand_over(self._on_message, self._on_closed, LARGEST)

    @property
    def name(self) -> str:
        return self.facts.name

    def send(self, message: Message) -> None:
        self.link.send(message)

    def launch(self, name: str, listener: Listener, grant: Grant = NOTHING_SAID) -> RemoteWorker:
        worker = self._workers[name] = RemoteWorker(name, listener, self.send)
        self.send(["launch", name, list(grant.gpus), grant.memory_bytes])
        return worker

    @property
    def load(self) -> int:
        """The number of its workers."""
        return len(self._workers)

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        self.send(["learn", list(modules), float(took_s)])

    def end(self, grace_s: float) -> None:
        """Order the agent to end its workers and itself. It reports the exits first."""
        if not self.is_ending:
            self.is_ending = True
            self.send(["end", float(grace_s)])

    def lose_workers(self, cause: str) -> None:
        """Report the exits of all workers that are left."""
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            short = short_cause(cause)
            worker.gone(ExitCause(cause=f"was lost with the node {self.name} ({short})"))

    def _taken(self) -> ExitCause:
        """The exit of a worker that was ended with its node: as if the machine had been switched
        off, which sends SIGTERM."""
        cause = f"was ended with the node {self.name}: {self.end_cause}"
        return ExitCause(cause=cause, signum=signal.SIGTERM)

    def _on_closed(self, reason: str) -> None:
        self._owner.on_closed(self, reason)

    def _on_message(self, message: Message) -> None:
        found = messages.read(message)
        match found:
            case messages.FromWorker():
                if (worker := self._workers.get(found.worker)) is not None:
                    worker.deliver(found.message)
            case messages.Heartbeat():
                self.disk_free_bytes = found.disk_free_bytes
                self._answer_heartbeat()
            case messages.WorkerPid():
                if (worker := self._workers.get(found.worker)) is not None:
                    worker.take_pid(found.pid)
            case messages.WorkerUsed():
                if (worker := self._workers.get(found.worker)) is not None:
                    worker.has_used(found.used)
            case messages.WorkerExit():
                if (worker := self._workers.pop(found.worker, None)) is not None:
                    worker.gone(found.ending if self.end_cause == GIVEN_BACK else self._taken())
            case messages.Answer():
                self._owner.on_answer(self, found.message)
            case messages.Leaving():
                self._owner.on_leaving(self, found.seconds, found.why)
            case messages.Loaded():
                self._owner.on_loaded(self, found.notice)
            case messages.Unloadable():
                self._owner.on_unloadable(self, found)
            case messages.Warned():
                self._warnings += 1
                if self._warnings <= MOST_WARNINGS:
                    self._owner.on_warned(self, found.text)
            case _:
                assert_never(found)

    def _answer_heartbeat(self) -> None:
        """One answer for all heartbeats that have arrived together: an agent that sends them
        without a pause costs little."""
        if self._answered_s != self.link.received_s:
            self._answered_s = self.link.received_s
            self.send(["heartbeat"])


_WAIT_S = 60.0


class Fleet:
    """Workers on the nodes that an engine supplies: a `Launcher` and an `EngineHost`."""

    def __init__(
        self,
        engine: Engine,
        host: FleetHost,
        *,
        tasks: TaskScope,
        settings: FleetSettings | None = None,
        shared: Shared | None = None,
        taken: Iterable[str] = (),
        in_thread: InThread = at_once,
    ) -> None:
        """`taken` are names that no node gets, such as those of an earlier run's nodes.
        `in_thread` reads the files for nodes."""
        self._engine = engine
        self._host = host
        self._tasks = tasks
        self._settings = settings or FleetSettings()
        self._taken = set(taken)
        self._load = NodeLoad(shared or Shared(), in_thread)
        self._loop = asyncio.get_running_loop()
        self._admission = Admission(
            self._settings, tasks, admitted=self._admit, refused=self._refuse, tell=host.tell
        )
        self._nodes: dict[str, Node] = {}
        self._all_left = asyncio.Event()
        self._all_left.set()
        self._wanted: dict[str, int] = {}
        self._supplies_no_more = ""
        self._first = FirstNode(host.tell)
        self._is_open = self._closing = False
        # A shorter suspension ends no lease.
        self._suspension = Suspension(self._settings.lease_s - self._settings.heartbeat_s)
        tasks.start(self._suspension.watch())

    # -- the launcher ---------------------------------------------------------------------------

    async def open(self, entry: str, payload: bytes, *, waits: bool = False) -> str:
        """Start the engine, and wait until the first node can run workers. If it `waits`, nodes
        join and wait for `complete`.

        Raises LaunchFailed if the first node cannot load what workers share, and NoNodes if there
        is no node at all.
        """
        self._load.code(entry, payload)
        if not waits:
            self._load.complete()
        try:
            await self._engine.open(self)
            self._is_open = True
            kinds = {kind.name: kind.most or 1 for kind in self._engine.offer().kinds}
            for kind, count in (self._wanted or kinds).items():
                self._engine.want(kind, count)
        except EngineFailed as error:
            raise NoNodes(str(error)) from error
        return await self._first.notice

    def complete(self, service: bytes, files: Sequence[SharedFile]) -> None:
        """Let nodes load; they get these, too."""
        self._load.shared = replace(self._load.shared, service=service, files=files)
        self._load.complete()

    def launch(
        self, name: str, listener: Listener, node: str = "", grant: Grant = NOTHING_SAID
    ) -> RemoteWorker:
        """Start a worker on this node; without a name, on the one with the fewest workers."""
        found = None if self._closing else self._find(node)
        if found is not None:
            return found.launch(name, listener, grant)
        problem = "the run is ending" if self._closing else f"there is no node {node}".rstrip()
        worker = RemoteWorker(name, listener, lambda _: None)
        ending = ExitCause(cause=f"could not be started: {problem}")
        self._loop.call_soon(worker.gone, ending)
        return worker

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        for node in self._joined():
            node.learn(modules, took_s)

    def processes(self) -> list[Watched]:
        """The engine's processes; each agent watches its own."""
        return self._engine.processes()

    def kill(self) -> None:
        self._stop()
        for node in list(self._nodes.values()):
            node.link.close()
            self._loop.call_soon(self._leave, node, "the run ended")
        self._engine.kill()

    async def close(self, grace_s: float | None = None) -> str:
        """End all workers, agents and jobs. Agents get `grace_s` for what is left to keep."""
        grace_s = self._settings.grace_s if grace_s is None else grace_s
        self._stop()
        for node in list(self._nodes.values()):
            if node.link.is_open:
                node.end(grace_s)
            else:  # it was waiting for the cause
                self._leave(node, "gone")
        if not await happens(self._all_left, grace_s + self._settings.late_s):
            for node in list(self._nodes.values()):
                node.link.close()
                self._leave(node, "it did not end in time")
        try:
            async with asyncio.timeout(grace_s + self._settings.late_s):
                return await self._engine.close(grace_s)
        except TimeoutError:
            self._engine.kill()
            return f"the cluster's jobs did not end within {grace_s + self._settings.late_s:g} s"

    @property
    def turned_away(self) -> int:
        """How many connections have shown no ticket."""
        return self._admission.turned_away

    # -- nodes ----------------------------------------------------------------------------------

    def want(self, count: int, kind: str = "") -> None:
        """Let there be this many nodes, of the first kind that the engine offers by default."""
        kind = kind or self._engine.offer().kinds[0].name
        self._wanted[kind] = count
        if self._is_open and not self._closing:
            self._engine.want(kind, count)

    def give_back(self, name: str) -> None:
        """End a node's agent and its job. `node_left` follows."""
        if (node := self._nodes.get(name)) is not None:
            self._end(node, GIVEN_BACK)

    def vacate(self, name: str, why: str) -> None:
        """End a node's agent soon, as if its end had been announced: another agent follows."""
        if (node := self._nodes.get(name)) is not None:
            self.on_leaving(node, self._settings.grace_s, why)

    def _end(self, node: Node, cause: str) -> None:
        if not node.is_ending:
            node.end_cause = cause
            node.end(self._settings.grace_s)
            late = self._settings.grace_s + self._settings.late_s
            self._tasks.later(late, node.link.fail, f"it did not end within {late:g} s")

    def last_messages(self) -> list[LastMessage]:
        """When the last message of each node that has joined came."""
        now = self._loop.time()
        return [
            LastMessage(node.name, now - node.link.received_s, node.disk_free_bytes)
            for node in self._joined()
        ]

    def order(self, name: str, message: Message) -> None:
        """Send an order to the node's service. Ignored if the node has left."""
        if (node := self._nodes.get(name)) is not None:
            node.send(["order", message])

    def _find(self, name: str) -> Node | None:
        if name:
            node = self._nodes.get(name)
            return node if node is not None and node.is_joined else None
        return min(self._joined(), key=lambda node: node.load, default=None)

    def _joined(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.is_joined]

    def _of_ticket(self, ticket: str) -> Node | None:
        return next((n for n in self._nodes.values() if n.ticket.name == ticket), None)

    # -- a node's life --------------------------------------------------------------------------

    def _admit(self, link: Link, ticket: Ticket, hello: Hello) -> None:
        name = free_name(host_name(hello.hostname), self._taken)
        self._taken.add(name)
        node = Node(self._facts(name, ticket, hello), ticket, link, self)
        self._nodes[name] = node
        self._all_left.clear()
        settings = self._settings
        times = {"heartbeat_s": float(settings.heartbeat_s), "lease_s": float(settings.lease_s)}
        node.send(["welcome", name, times])
        self._load.give(node, self._tasks)
        self._tasks.start(end_if_silent(link, settings.lease_s + settings.margin_s, forgives=True))

    def _facts(self, name: str, ticket: Ticket, hello: Hello) -> NodeFacts:
        """Resources that the engine has promised replace those that the agent has found."""
        kinds = {kind.name: kind.resources or {} for kind in self._engine.offer().kinds}
        resources = {**hello.resources, **kinds.get(ticket.kind, {})}
        return NodeFacts(
            name=name,
            hostname=hello.hostname,
            address=hello.address,
            resources=resources,
            gpus=gpu_names_of(int(resources.get("GPU", 0)), hello.gpus),
            python=hello.python,
            pid=hello.pid,
            disk_free_bytes=hello.disk_free_bytes,
            kind=ticket.kind,
        )

    def on_loaded(self, node: Node, notice: str) -> None:
        if node.disk_free_bytes < self._settings.least_free_bytes:
            told = "there is no room below its scratch folder"
            full = Unloadable(type_name="DiskFull", message=told, traceback="")
            self.on_unloadable(node, full)
        elif not (node.is_joined or node.is_ending):
            node.is_joined = True
            self._host.node_joined(node.facts)
            for message in node.early:
                self.on_answer(node, message)
            node.early.clear()
            self._first.joined(notice)

    def on_unloadable(self, node: Node, found: Unloadable) -> None:
        if node.is_ending:  # its agent has killed the process that was loading
            return
        text = f"The node {node.name} cannot be used: {found.type_name}: {found.message}"
        # It ends with an error, so the engine rests before the next attempt there.
        node.is_refused = True
        node.send(["refused", text])
        self._tasks.later(self._settings.late_s, node.link.fail, "it did not end")
        if found.traceback:
            message = f"{found.message} (on node {node.name})"
            error = LaunchFailed(found.type_name, message, found.traceback)
            self._first.tell_or_fail(text, error)
        else:  # the user's code is not the reason, so another node may do
            self._first.refuse(text)
            self._first.tell_later(text)

    def on_answer(self, node: Node, message: Message) -> None:
        """The service may be ready before the workers' imports are. Raises WireError."""
        if node.is_joined:
            try:
                self._host.on_answer(node.name, message)
            except ValueError as error:
                raise WireError(str(error)) from error
        elif len(node.early) >= MOST_EARLY:
            raise WireError(f"more than {MOST_EARLY:,} messages before it is ready")
        else:
            node.early.append(message)

    def on_leaving(self, node: Node, seconds: float, why: str) -> None:
        if node.is_joined and not (node.is_leaving or node.is_ending):
            node.is_leaving = True
            self._host.node_leaving(node.name, seconds, why)
            # Nothing starts there any more. If nobody takes it away, a new agent can use it.
            self._tasks.later(seconds, self._end, node, f"its announced time was over ({why})")

    def on_warned(self, node: Node, text: str) -> None:
        self._host.tell(f"{node.name}: {text}")

    def on_closed(self, node: Node, reason: str) -> None:
        if node.is_ending and not reason:
            self._leave(node, "the run ended" if self._closing else node.end_cause)
        else:
            self._tasks.start(self._lose(node, reason))

    async def _lose(self, node: Node, cause: str) -> None:
        """Give the engine a short time to add the cause, unless that is its silence, which has
        taken long enough."""
        if not (cause or self._closing or node.job_ended.done()):
            self._engine.ask(node.ticket.name)
            await asyncio.wait([node.job_ended], timeout=self._settings.cause_s)
        if node.job_ended.done():
            cause = ": ".join(filter(None, (cause, node.job_ended.result())))
        self._leave(node, cause or "its connection has ended")

    def _leave(self, node: Node, cause: str) -> None:
        """Report a node's loss, then the exits of its workers: no resources return to it."""
        if self._nodes.get(node.name) is not node:
            return
        del self._nodes[node.name]
        if not node.is_joined:
            self._taken.discard(node.name)
            if not (self._closing or node.is_ending or node.is_refused):
                text = f"The node {node.name} was lost before it was ready: {cause}"
                self._first.tell_later(text)
        elif not self._closing:
            if not node.is_ending and (why := self._why_unheard(node)):
                cause = f"{why} ({short_cause(cause)})"
                if not node.is_leaving:
                    self._host.node_leaving(node.name, 0.0, why)
            self._host.node_left(node.name, cause)
        node.lose_workers(cause)
        if not node.job_ended.done():
            node.job_ended.cancel()
            self._engine.give_back(node.ticket.name)
        if not self._nodes:
            self._all_left.set()
        self._give_up_without_hope()

    def _why_unheard(self, node: Node) -> str:
        """Why the node could not hear this process any more; "" if it could."""
        suspension = self._suspension
        suspension.check()
        if node.link.received_s > suspension.ended + LATE_S:
            return ""
        return (
            f"the script was suspended for {suspension.lasted_s:.0f} s, and a node waits "
            f"{self._settings.lease_s:g} s for it"
        )

    def _stop(self) -> None:
        """Admit no more agents, and start no more agents and workers."""
        if self._is_open and not self._closing:
            # An agent that has ended as ordered is not replaced while others take longer.
            for kind in self._engine.offer().kinds:
                self._engine.want(kind.name, 0)
        self._closing = True
        self._admission.close()
        self._first.fail(LaunchFailed("RunEnded", "the run is ending"))

    # -- the owner of the engine ----------------------------------------------------------------

    def invite(self, kind: str, *, over_pipe: bool) -> Invitation:
        """Raises EngineFailed if agents cannot connect to this machine."""
        return self._admission.invite(kind, over_pipe=over_pipe)

    def attach(self, ticket: str, pipe: Pipe) -> None:
        self._admission.attach(ticket, pipe)

    def gone(self, ticket: str, cause: str) -> None:
        node = self._of_ticket(ticket)
        if node is not None:
            if not node.job_ended.done():
                node.job_ended.set_result(cause)
        elif self._admission.tickets.withdraw(ticket) and not self._closing:
            self._first.tell_later(f"An agent ended before it joined: {cause}")
            self._give_up_without_hope()

    def leaving(self, ticket: str, seconds: float, why: str) -> None:
        if (node := self._of_ticket(ticket)) is not None:
            self.on_leaving(node, seconds, why)

    def waits(self, text: str) -> None:
        self._host.waits(text)

    def tell(self, text: str) -> None:
        self._first.tell(text)

    def refused(self, text: str) -> None:
        self._supplies_no_more = text
        self._first.tell_or_fail(text, NoNodes(text))
        self._give_up_without_hope()

    def _refuse(self, ticket: Ticket, problem: str) -> None:
        self._first.refuse(problem)
        self._first.tell_later(f"A node is refused: {problem}")
        self._tasks.later(self._settings.late_s, self._engine.give_back, ticket.name)
        self._give_up_without_hope()

    def _give_up_without_hope(self) -> None:
        """Fail `open` if every agent that was invited has been refused or is gone. Once it has
        returned, report that no node is left, and that there will be none."""
        if self._nodes or self._admission.tickets.open or self._closing:
            return
        if not self._first.is_known:
            self._first.give_up()
        elif self._supplies_no_more and self._first.notice.exception() is None:
            self._host.no_node_left(self._supplies_no_more)


class FirstNode:
    """The wait for the first node that can run workers. Holds warnings back until there is one,
    and shows each text once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` shows a warning."""
        self._tell = tell
        self._refusals: list[str] = []
        self._told: set[str] = set()
        self._untold: list[str] = []
        # Its notice when it has loaded.
        self.notice: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.notice.add_done_callback(_retrieve)

    @property
    def is_known(self) -> bool:
        """True if there was one, or the wait has failed."""
        return self.notice.done()

    def joined(self, notice: str) -> None:
        if not self.is_known:
            self.notice.set_result(notice)
            for text in self._untold:
                self.tell(text)

    def fail(self, error: LaunchFailed) -> None:
        if not self.is_known:
            self.notice.set_exception(error)

    def refuse(self, problem: str) -> None:
        """An agent cannot be a node; another one may."""
        self._refusals.append(problem)

    def give_up(self) -> None:
        """Fail if an agent was refused: no other one is left."""
        if self._refusals:
            text = "; ".join(dict.fromkeys(self._refusals))
            self.fail(NoNodes(f"Each node was refused: {text}"))

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def tell_later(self, text: str) -> None:
        """Tell once the first node has joined: if none does, the error says the same."""
        if self.is_known:
            self.tell(text)
        else:
            self._untold.append(text)

    def tell_or_fail(self, text: str, error: LaunchFailed) -> None:
        if self.is_known:
            self.tell(text)
        else:
            self.fail(error)


def _retrieve(first: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is not logged."""
    if not first.cancelled():
        first.exception()


class NodeLoad:
    """What every node gets before it starts workers: files, and then the order to load. Nodes that
    join before everything is `complete` wait for it."""

    def __init__(self, shared: Shared, in_thread: InThread) -> None:
        """`in_thread` reads the files."""
        self.shared = shared
        self._in_thread = in_thread
        self._entry, self._payload = "", b""
        self._complete = asyncio.Event()

    def code(self, entry: str, payload: bytes) -> None:
        """What workers run."""
        self._entry, self._payload = entry, payload

    def complete(self) -> None:
        """From now on nothing changes."""
        self._complete.set()

    def give(self, node: Node, tasks: TaskScope) -> None:
        """Send it to the node, now or later."""
        if self._complete.is_set() and not self.shared.files:
            node.send(self._order())
        else:
            tasks.start(self._give(node))

    async def _give(self, node: Node) -> None:
        # Whoever completes it has the deadlines.
        while not await happens(self._complete, _WAIT_S):
            if not node.link.is_open:
                return
        try:
            await deliver(self.shared.files, node.link, self._in_thread)
        except OSError as error:
            node.link.fail(f"the files for it cannot be read here: {error}")
        else:
            node.send(self._order())

    def _order(self) -> Message:
        shared = {one.name: getattr(self.shared, one.name) for one in fields(Shared)}
        del shared["files"]
        return ["load", {"entry": self._entry, "payload": self._payload, **shared}]
