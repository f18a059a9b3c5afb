"""The controller's handle of one agent, from its hello to its loss."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Protocol, assert_never

from holdfast.runtime.exit_cause import ExitCause, short_cause
from holdfast.runtime.fleet import claims
from holdfast.runtime.fleet.host import GIVEN_BACK, NodeFacts
from holdfast.runtime.fleet.link import LARGEST, Link
from holdfast.runtime.fleet.remote_worker import RemoteWorker
from holdfast.runtime.fleet.tickets import Ticket
from holdfast.runtime.launcher import NOTHING_SAID, Grant, Listener
from holdfast.runtime.wire import Message

# So many messages of its service may arrive before the node can run workers.
MOST_EARLY = 1000
# So many warnings of one node are shown.
MOST_TOLD = 100


class NodeOwner(Protocol):
    """The fleet, as its nodes see it."""

    def on_loaded(self, node: Node, notice: str) -> None: ...

    def on_unloadable(self, node: Node, found: claims.Unloadable) -> None: ...

    def on_kept(self, node: Node, message: Message) -> None: ...

    def on_leaving(self, node: Node, seconds: float, why: str) -> None: ...

    def on_told(self, node: Node, text: str) -> None: ...

    def on_closed(self, node: Node, reason: str) -> None:
        """The connection has ended; "" if the other end closed it, or is gone."""


class Node:
    """One agent. Messages of workers that have exited are ignored."""

    def __init__(self, facts: NodeFacts, ticket: Ticket, link: Link, owner: NodeOwner) -> None:
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
        # When the bytes arrived whose beat was answered.
        self._answered_s = -1.0
        self._told = 0
        self._workers: dict[str, RemoteWorker] = {}
        link.hand_over(self._on_message, self._on_closed, LARGEST)

    @property
    def name(self) -> str:
        return self.facts.name

    def send(self, message: Message) -> None:
        self.link.send(message)

    def launch(self, name: str, listener: Listener, grant: Grant = NOTHING_SAID) -> RemoteWorker:
        worker = self._workers[name] = RemoteWorker(name, listener, self)
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
        claim = claims.read(message)
        match claim:
            case claims.FromWorker():
                if (worker := self._workers.get(claim.worker)) is not None:
                    worker.hear(claim.message)
            case claims.Beat():
                self.disk_free_bytes = claim.disk_free_bytes
                self._answer_beat()
            case claims.WorkerPid():
                if (worker := self._workers.get(claim.worker)) is not None:
                    worker.take_pid(claim.pid)
            case claims.WorkerUsed():
                if (worker := self._workers.get(claim.worker)) is not None:
                    worker.has_used(claim.used)
            case claims.WorkerExit():
                if (worker := self._workers.pop(claim.worker, None)) is not None:
                    worker.gone(claim.ending if self.end_cause == GIVEN_BACK else self._taken())
            case claims.Kept():
                self._owner.on_kept(self, claim.message)
            case claims.Leaving():
                self._owner.on_leaving(self, claim.seconds, claim.why)
            case claims.Loaded():
                self._owner.on_loaded(self, claim.notice)
            case claims.Unloadable():
                self._owner.on_unloadable(self, claim)
            case claims.Told():
                self._told += 1
                if self._told <= MOST_TOLD:
                    self._owner.on_told(self, claim.text)
            case _:
                assert_never(claim)

    def _answer_beat(self) -> None:
        """One answer for all beats that have arrived together: an agent that sends them without a
        pause costs little."""
        if self._answered_s != self.link.heard_s:
            self._answered_s = self.link.heard_s
            self.send(["beat"])
