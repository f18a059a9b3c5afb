"""The nodes of a run: turns what the fleet reports into events, and knows each node's facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from holdfast.experiment.control.controller import Controller
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.host import GIVEN_BACK, NodeFacts
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event, NodeJoined, NodeLeaving, NodeLeft


class NodeListener(Protocol):
    """What the run does with its nodes once it has begun."""

    def post(self, event: Event) -> None: ...

    def on_kept(self, node: str, message: Message) -> None:
        """An answer of the keeper of this node."""

    def on_node(self, facts: NodeFacts) -> None:
        """A node has joined; called before the event."""

    def on_node_leaving(self, node: str, seconds: float, why: str) -> None:
        """A node will be taken away; called after the event."""

    def on_node_lost(self, node: str, cause: str) -> None:
        """A node is gone; called after the event."""

    def on_no_node_left(self, why: str) -> None:
        """There is no node any more, and there will be none."""


class RunNodes:
    """The owner of the run's fleet.

    Nodes join while the code is still being loaded, before the journal has its first record. Their
    events wait for `begin`.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` shows a warning."""
        self.facts: dict[str, NodeFacts] = {}
        # What the engine waits for; "" for nothing.
        self.waiting = ""
        # Set when it waits for something else, and when it begins.
        self.news = asyncio.Event()
        self._tell = tell
        self._listener: NodeListener | None = None
        self._early: list[Callable[[NodeListener], None]] = []

    def begin(self, listener: NodeListener) -> None:
        """Pass on what has happened so far, and from now on everything at once."""
        self._listener = listener
        for act in self._early:
            act(listener)
        self._early.clear()
        self.news.set()

    # -- what the fleet reports -----------------------------------------------------------------

    def node_joined(self, node: NodeFacts) -> None:
        self.facts[node.name] = node
        self._pass_on(lambda listener: _join(listener, node))

    def node_leaving(self, name: str, seconds: float, why: str) -> None:
        event = NodeLeaving(node=name, seconds=seconds, why=why)
        self._pass_on(lambda listener: _post_leaving(listener, event))

    def node_left(self, name: str, cause: str) -> None:
        self._pass_on(lambda listener: _leave(listener, name, cause))

    def no_node_left(self, why: str) -> None:
        self._pass_on(lambda listener: listener.on_no_node_left(why))

    def on_kept(self, name: str, message: Message) -> None:
        self._pass_on(lambda listener: _hear(listener, name, message))

    def waits(self, text: str) -> None:
        self.waiting = text
        self.news.set()

    def tell(self, text: str) -> None:
        self._tell(text)

    def _pass_on(self, act: Callable[[NodeListener], None]) -> None:
        if self._listener is None:
            self._early.append(act)
        else:
            act(self._listener)


def _join(listener: NodeListener, node: NodeFacts) -> None:
    listener.on_node(node)
    joined = NodeJoined(
        node=node.name,
        resources=node.resources,
        hostname=node.hostname,
        address=node.address,
        kind=node.kind,
    )
    listener.post(joined)


def _post_leaving(listener: NodeListener, event: NodeLeaving) -> None:
    listener.post(event)
    listener.on_node_leaving(event.node, event.seconds or 0.0, event.why)


def _hear(listener: NodeListener, name: str, message: Message) -> None:
    """Raises WireError, which ends the connection to the node."""
    try:
        listener.on_kept(name, message)
    except ValueError as error:
        raise WireError(str(error)) from error


def _leave(listener: NodeListener, name: str, cause: str) -> None:
    listener.post(NodeLeft(node=name, cause=cause))
    listener.on_node_lost(name, cause)


class NodeChanges:
    """What a run that has begun does with its nodes: a `NodeListener`."""

    def __init__(self, controller: Controller, uploads: Uploads) -> None:
        self.controller, self._uploads = controller, uploads

    def post(self, event: Event) -> None:
        self.controller.post(event)

    def on_kept(self, node: str, message: Message) -> None:
        """Raises ValueError if no keeper sends this."""
        self._uploads.routes.on_kept(node, message)

    def on_node(self, facts: NodeFacts) -> None:
        self._uploads.routes.node_joined(facts.name)
        self.controller.pool.node_joined(facts)

    def on_node_leaving(self, node: str, seconds: float, why: str) -> None:
        if seconds:  # else its loss follows at once
            self.controller.warn(f"node {node} leaves in {seconds:g} s: {why}")
        self._uploads.routes.node_leaving(node)

    def on_node_lost(self, node: str, cause: str) -> None:
        """The workers and files on it are gone, too."""
        controller = self.controller
        if cause == GIVEN_BACK:
            controller.warn(f"node {node} was given back: it had no work", "info")
        else:
            controller.warn(f"node {node} is lost: {cause}")
        self._uploads.routes.node_left(node)
        controller.pool.node_left(node)
        # Trials wait for an answer about each of them, also where an upload had failed.
        for trial in list(controller.machine.trials.values()):
            for record in trial.checkpoints:
                if record.node == node and not record.committed:
                    self._uploads.commit(trial.spec, record)

    def on_no_node_left(self, why: str) -> None:
        """Trials would wait forever."""
        self.controller.end_with(f"no node is left, and the cluster supplies no more: {why}")
