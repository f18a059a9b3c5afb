"""The interface of a fleet's owner, and the facts about a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from holdfast.dataclass import dataclass
from holdfast.runtime.wire import Message

# The cause of a node's end that its owner ordered.
GIVEN_BACK = "given back"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node that has joined. `address` is its own name for its end of the connection, at which
    other nodes can reach it. `resources` has "CPU", "GPU", custom ones and "memory" in bytes.
    `pid` is the agent's, `kind` the name of its kind in the engine's offer."""

    name: str
    hostname: str
    address: str
    resources: Mapping[str, float]
    gpus: Sequence[str]
    python: str
    pid: int
    disk_free_bytes: int
    kind: str = ""


class Heard(NamedTuple):
    """A node, the seconds since it was last heard from, and the free bytes of its disk."""

    node: str
    ago_s: float
    disk_free_bytes: int


class FleetHost(Protocol):
    """The owner of a fleet. Called on the loop; `node_joined` also before `open` returns."""

    def node_joined(self, node: NodeFacts) -> None:
        """A node can run workers."""

    def node_leaving(self, name: str, seconds: float, why: str) -> None:
        """The node will be taken away in so many seconds. Called at most once per node."""

    def node_left(self, name: str, cause: str) -> None:
        """A node is lost, or was given back. The exits of its workers follow."""

    def no_node_left(self, why: str) -> None:
        """There is no node any more, and the engine will supply none."""

    def on_kept(self, name: str, message: Message) -> None:
        """An answer of the node's service."""

    def waits(self, text: str) -> None:
        """What the engine waits for; "" for nothing."""

    def tell(self, text: str) -> None:
        """A warning for the user."""
