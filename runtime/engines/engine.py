"""The interface of engines, which supply nodes by starting an agent on each.

An agent is `python -m holdfast.agent -` with an invitation on its stdin. An agent whose stdin and
stdout the engine holds (ssh, srun) talks to the controller over them; any other connects to the
controller's port over TLS.

Only the connection to the agent decides whether a node is lost. An engine adds the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.runtime.process_exits import Watched

# The variable by which an engine says how many seconds an agent has after SIGTERM.
LEAVES_IN_S = "HOLDFAST_LEAVES_IN_S"
# More nodes than any cluster has: all.
ALL_NODES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike. Each has `resources`, by name; None if they are known only when it is
    there. There can be `most` of them; None if the engine does not know a limit."""

    name: str
    resources: Mapping[str, float] | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The nodes that an engine could supply."""

    kinds: Sequence[NodeKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """The bytes that one agent must read from its stdin, and the ticket that names the agent until
    it is a node.

    `secret` admits one agent, once: it must not be in an argument, in the environment, or in a
    file that others can read.
    """

    ticket: str
    secret: bytes


@dataclass(frozen=True, slots=True)
class Pipe:
    """The descriptors of an agent's stdout and stdin, for an agent that talks over them. Whoever
    gets them closes them."""

    reads: int
    writes: int


class EngineHost(Protocol):
    """The owner of an engine. Called on the loop. A ticket that is not known any more is
    ignored."""

    def invite(self, kind: str, *, over_pipe: bool) -> Invitation:
        """An invitation for one more agent on a node of this kind."""

    def attach(self, ticket: str, pipe: Pipe) -> None:
        """The agent talks over these descriptors. Its invitation was already written to it."""

    def gone(self, ticket: str, cause: str) -> None:
        """The agent's job has ended, or never began: `cause` says why in one line, and names host,
        command and its last lines. Called once per ticket, as its last call."""

    def leaving(self, ticket: str, seconds: float, why: str) -> None:
        """The engine will take the node away in so many seconds."""

    def waits(self, text: str) -> None:
        """What the engine waits for, as a queue; "" for nothing. Shown to the user."""

    def tell(self, text: str) -> None:
        """A warning for the user."""

    def refused(self, text: str) -> None:
        """The engine can supply no nodes: `text` says what was tried and what to do."""


class Engine(Protocol):
    """Supplies nodes. Every call returns soon: commands run in tasks and have deadlines."""

    def offer(self) -> Offer:
        """The nodes that it could supply, as far as known now; may be called before `open`."""

    async def open(self, host: EngineHost) -> None:
        """Begin. Raises EngineFailed if it is known that no node can be had, with what was
        tried."""

    def want(self, kind: str, count: int) -> None:
        """Let there be `count` nodes of this kind, as soon as possible. Idempotent. With a lower
        count it starts no new ones; `give_back` names those that leave."""

    def ask(self, ticket: str) -> None:
        """The connection to the agent has ended: if it takes a question to know why, ask now.
        `gone` follows, and is of use within a second."""

    def give_back(self, ticket: str) -> None:
        """End the agent's job. The host has already ordered the agent to end."""

    def processes(self) -> list[Watched]:
        """The engine's own processes on this machine."""

    def kill(self) -> None:
        """Send SIGKILL to its processes, and cancel what it can, without waiting."""

    async def close(self, grace_s: float) -> str:
        """End all jobs, and wait at most `grace_s`. Returns a warning that names what may still
        run, or ""."""


class EngineFailed(Exception):
    """An engine can supply no node. The text says what was tried (host, command, its last lines)
    and what to do."""
