"""The nodes of a run: turns what the fleet reports into events, and knows each node's facts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.experiment.control.controller import Controller
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.scaling import ElasticSize
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.nodes_file import NodeBeat, NodesFile
from holdfast.experiment.nodes.cluster_config import Local
from holdfast.experiment.nodes.engines import PlannedEngine
from holdfast.experiment.nodes.storage_environ import of_storage
from holdfast.experiment.records.wall_clock import wall_time
from holdfast.experiment.worker.host import node_ip
from holdfast.experiment.worker.train_loop import LOOPBACK
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.host import NodeFacts
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Message
from holdfast.scheduler.demand import demand
from holdfast.scheduler.events import Event, NodeJoined, NodeLeaving, NodeLeft, NodesSettled
from holdfast.syncer.files import threads

if TYPE_CHECKING:
    from holdfast.runtime.fleet.fleet import Fleet

_BEATS_S = 5.0
# An engine gives a host so long to answer.
_SETTLES_S = 60.0


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
        self._tell = tell
        self._listener: NodeListener | None = None
        self._early: list[Callable[[NodeListener], None]] = []

    def begin(self, listener: NodeListener) -> None:
        """Pass on what has happened so far, and from now on everything at once."""
        self._listener = listener
        for act in self._early:
            act(listener)
        self._early.clear()

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


def open_fleet(plan: RunPlan, engine: PlannedEngine, nodes: RunNodes, tasks: TaskScope) -> Fleet:
    """The launcher of a run on a cluster. No node has the name of an earlier one."""
    # Only here: a run on one machine starts without them.
    from holdfast.runtime.fleet.fleet import Fleet
    from holdfast.runtime.fleet.settings import FleetSettings, Shared

    fleet = Fleet(
        engine.make(tasks),
        nodes,
        tasks=tasks,
        settings=FleetSettings(address=_address(plan), grace_s=plan.settings.stop_grace_s),
        shared=Shared(
            env_vars={**of_storage(os.environ), **plan.environment.env_vars},
            import_folders=[folder for folder in sys.path if folder and os.path.isdir(folder)],
            directory=plan.environment.working_dir,
            learns=plan.settings.preload,
            workers_move=plan.job.chdir,
            stopped_deadline_s=plan.settings.stopped_deadline_s,
        ),
        taken=plan.machine.cluster.past,
        in_thread=threads.call,
    )
    _want(fleet, engine)
    return fleet


async def keep_nodes_file(fleet: Fleet, layout: Layout) -> None:
    """Write when each node was last heard from, for `holdfast nodes`."""
    file = NodesFile(layout)
    while True:
        now = wall_time()
        beats = [
            NodeBeat(node=one.node, at=now - one.ago_s, disk_free_bytes=one.disk_free_bytes)
            for one in fleet.heard()
        ]
        await threads.call(partial(file.write, beats))
        await asyncio.sleep(_BEATS_S)


async def settle(nodes: RunNodes, controller: Controller) -> None:
    """After a while, let the nodes that have joined show what the cluster has: those that only
    silence keeps away may never come."""
    await asyncio.sleep(_SETTLES_S)
    controller.post(NodesSettled(missing=nodes.waiting))


async def keep_size(
    fleet: Fleet, engine: PlannedEngine, controller: Controller, total: int | None
) -> None:
    """Let the cluster grow with the queue, and shrink when nodes have no work. `total` is the
    number of trials that the search makes; None if it has no end."""
    (kind,) = engine.offer.kinds
    size = ElasticSize(engine.least, engine.most, idle_s=engine.idle_s)
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(size.look_s)
        machine = controller.machine
        scale = size.look(demand(machine, total), machine.cluster.nodes, loop.time())
        fleet.want(scale.count, kind.name)
        for node in scale.surplus:
            # First, so that no trial starts there.
            controller.post(NodeLeaving(node=node, seconds=0.0, why="it has no work"))
            fleet.give_back(node)


def _want(fleet: Fleet, engine: PlannedEngine) -> None:
    """Order the nodes that the run begins with."""
    left = max(1, engine.least) if engine.is_elastic else engine.most
    for kind in engine.offer.kinds:
        most = engine.most_of(kind)
        count = left if most is None else min(left, most)
        fleet.want(count, kind.name)
        left -= count


def _address(plan: RunPlan) -> str:
    """The name or number of this machine that agents connect to."""
    cluster = plan.host_resources.cluster
    if cluster is not None and cluster.controller_address is not None:
        return cluster.controller_address
    return LOOPBACK if isinstance(cluster, Local) else node_ip()
