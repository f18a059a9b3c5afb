"""The cluster of a run: its fleet, what the nodes get before the first trial, their number, and
the events that follow from what the fleet reports."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from holdfast.compat import ray_path
from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.thread import Tell
from holdfast.experiment.control.controller import Controller
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.uploader import node_uploader_settings
from holdfast.experiment.folder.nodes_file import NodeBeat, NodesFile
from holdfast.experiment.folder.settings import SHARE
from holdfast.experiment.nodes.cluster_config import Local
from holdfast.experiment.nodes.engines import PlannedEngine
from holdfast.experiment.nodes.packing import (
    of_storage,
    own_modules,
    pack_folder,
    pack_modules,
    size_text,
)
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.experiment.worker.objects import ObjectRef
from holdfast.experiment.worker.train_loop import LOOPBACK
from holdfast.experiment.workers.shared_machines import (
    RunMachines,
    SharedMachines,
    of_process,
)
from holdfast.runtime.fleet.delivery import SharedFile
from holdfast.runtime.fleet.facts import (
    GIVEN_BACK,
    FleetSettings,
    NodeFacts,
    Shared,
    node_ip,
)
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.objects import LockedFolder, temporary_folder
from holdfast.runtime.tasks import TaskScope, happens
from holdfast.runtime.wire import Message
from holdfast.scheduler.demand import Demand, demand
from holdfast.scheduler.events import NodeJoined, NodeLeaving, NodeLeft, NodesSettled
from holdfast.syncer.files import threads

_WRITTEN_S = 5.0
# An engine gives a host so long to answer.
_SETTLES_S = 60.0
# The pause between two counts of the whole queue, at most and at least.
_COUNT_S = 2.0
_SHORTEST_COUNT_S = 0.1


class RunCluster:
    """The machines of a run, which an engine supplies.

    `fleet` is the launcher of its workers. It reports here when its nodes come, go and answer. No
    node can run workers before `controller` is set, and its uploads are opened.
    """

    controller: Controller

    def __init__(self, plan: RunPlan, engine: PlannedEngine, tell: Tell, tasks: TaskScope) -> None:
        # The nodes that have joined.
        self.facts: dict[str, NodeFacts] = {}
        # What the engine waits for; "" for nothing.
        self.waiting = ""
        self.fleet = _open_fleet(plan, engine, self, tasks)
        # Each node of a batch system belongs to one job.
        self.machines = RunMachines(SharedMachines() if engine.queues else of_process)
        self._plan, self._engine, self._show = plan, engine, tell
        self._packed: LockedFolder | None = None
        # Set when it waits for something else, and when it begins.
        self._is_new = asyncio.Event()
        tasks.start(self._keep_nodes_file())

    async def complete(
        self, claim: str, references: Sequence[ObjectRef], check: Callable[[], None]
    ) -> None:
        """Let the nodes' uploaders begin, under the `claim` of the uploader here, and send the
        script's files and the objects of `references`.

        `check` is called in a thread, before each file, and may raise.
        """
        service = node_uploader_settings(self._plan, claim)
        pack = partial(shared_files, self._plan, references, self._file, check, self._show)
        self.fleet.complete(service, await threads.call(pack))

    def _file(self, name: str) -> Path:
        """A path in the folder of packed files, made when it is needed. Raises OSError."""
        self._packed = self._packed or temporary_folder()
        return Path(self._packed.path, name)

    def begin(self) -> None:
        """Follow the queue, which the controller has begun."""
        if not self._engine.queues:
            self.controller.tasks.start(self._settle())
        if self._engine.is_elastic:
            self.controller.tasks.start(self._keep_size())
        self._is_new.set()

    def close(self) -> None:
        """Remove the packed files, and give the machines free."""
        self.machines.close()
        if self._packed is not None:
            self._packed.remove()

    @property
    def _uploads(self) -> Uploads:
        assert self.controller.uploads is not None
        return self.controller.uploads

    async def _keep_nodes_file(self) -> None:
        """Write when each node was last heard from and what is waited for, and end the agents of
        the nodes that the machine has closed."""
        file = NodesFile(self._plan.layout)
        while True:
            for name, node in list(self._plan.machine.cluster.nodes.items()):
                if node.leaving:
                    self.fleet.vacate(name, node.why)
            now = wall_time()
            seen = [
                NodeBeat(node=one.node, at=now - one.ago_s, disk_free_bytes=one.disk_free_bytes)
                for one in self.fleet.last_messages()
            ]
            await threads.call(partial(file.write, seen, self.waiting))
            await happens(self._is_new, _WRITTEN_S)
            self._is_new.clear()

    async def _settle(self) -> None:
        """After a while, let the nodes that have joined show what the cluster has: those that only
        silence keeps away may never come."""
        await asyncio.sleep(_SETTLES_S)
        self.controller.post(NodesSettled(missing=self.waiting))

    async def _keep_size(self) -> None:
        """Let the cluster grow with the queue, and shrink when nodes have no work."""
        plan, engine = self._plan, self._engine
        (kind,) = engine.offer.kinds
        size = ElasticSize(engine.least, engine.most, idle_s=engine.idle_s)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(size.pause_s)
            scale = size.scale(demand(plan.machine, plan.proposer.total), loop.time())
            self.fleet.want(scale.count, kind.name)
            for node in scale.surplus:
                # First, so that no trial starts there.
                self.controller.post(NodeLeaving(node=node, seconds=0.0, why="it has no work"))
                self.fleet.give_back(node)

    # -- what the fleet reports -----------------------------------------------------------------

    def node_joined(self, node: NodeFacts) -> None:
        self.facts[node.name] = node
        self._uploads.node_joined(node.name)
        if self.machines.join(node.name, node.hostname, node.gpus, node.resources):
            self.controller.warn(
                f"another fit() of this script also runs on node {node.name}: each waits while "
                f"the other holds the CPUs and GPUs that it needs there"
            )
        joined = NodeJoined(
            node=node.name,
            resources=node.resources,
            hostname=node.hostname,
            address=node.address,
            kind=node.kind,
        )
        self.controller.post(joined)

    def node_leaving(self, name: str, seconds: float, why: str) -> None:
        self.controller.post(NodeLeaving(node=name, seconds=seconds, why=why))
        if seconds:  # else its loss follows at once
            self.controller.warn(f"node {name} leaves in {seconds:g} s: {why}")
        self._uploads.node_leaving(name)

    def on_answer(self, name: str, message: Message) -> None:
        self._uploads.on_answer(message, name)

    def node_left(self, name: str, cause: str) -> None:
        """The workers and files on it are gone, too."""
        controller, uploads = self.controller, self._uploads
        controller.post(NodeLeft(node=name, cause=cause))
        if cause == GIVEN_BACK:
            controller.warn(f"node {name} was given back: it had no work", "info")
        else:
            controller.warn(f"node {name} is lost: {cause}")
        uploads.node_left(name)
        self.machines.leave(name)
        controller.pool.node_left(name)
        # Trials wait for an answer about each of them, also where an upload had failed.
        for trial in list(controller.machine.trials.values()):
            for record in trial.checkpoints:
                if record.node == name and not record.committed:
                    uploads.commit(trial.spec, record)

    def no_node_left(self, why: str) -> None:
        """Trials would wait forever."""
        self.controller.end_with(f"no node is left, and the cluster supplies no more: {why}")

    def waits(self, text: str) -> None:
        self.waiting = text
        self._is_new.set()

    def tell(self, text: str) -> None:
        self._show(text, "warning")


def _open_fleet(plan: RunPlan, engine: PlannedEngine, host: RunCluster, tasks: TaskScope) -> Fleet:
    """The launcher of a run on a cluster. No node has the name of an earlier one."""
    fleet = Fleet(
        engine.make(tasks),
        host,
        tasks=tasks,
        settings=FleetSettings(address=_address(plan), grace_s=plan.settings.stop_grace_s),
        shared=Shared(
            env_vars={**of_storage(os.environ), SHARE: "0", **plan.environment.env_vars},
            import_folders=[folder for folder in sys.path if folder and os.path.isdir(folder)],
            directory=plan.environment.working_dir,
            learns=plan.settings.preload,
            workers_move=plan.job.chdir,
            stopped_deadline_s=plan.settings.stopped_deadline_s,
            ray_names=ray_path.is_active(),
        ),
        taken=plan.machine.cluster.past,
        in_thread=threads.call,
    )
    _want(fleet, engine)
    return fleet


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


def shared_files(
    plan: RunPlan,
    references: Sequence[ObjectRef],
    file: Callable[[str], Path],
    check: Callable[[], None],
    tell: Tell,
) -> list[SharedFile]:
    """Pack the `working_dir` and the script's own modules, and list the objects.

    Agents on this machine need none of this. `check` is called before each file, and may raise.
    Raises InvalidConfig for a folder that is too large, OSError.
    """
    if isinstance(plan.host_resources.cluster, Local):
        return []
    files = [SharedFile(name=ref.id, path=ref.path, use="object") for ref in references]
    if references:
        total = size_text(sum(ref.size_bytes for ref in references))
        tell(f"sending objects to each node: {len(references):,}, {total}", "info")
    if folder := plan.environment.working_dir:
        archive, results = file("working_dir.tar.gz"), [plan.layout.root, plan.layout.root.parent]
        package = pack_folder(Path(folder), archive, without=results, look=check)
        tell(package.told(f"the working_dir {folder}"), "info")
        files.append(SharedFile(name="directory", path=str(package.archive), use="directory"))
    if names := own_modules(sys.modules):
        package = pack_modules(sys.modules, file("modules.tar.gz"), look=check)
        tell(package.told(f"your modules {', '.join(names)}"), "info")
        files.append(SharedFile(name="modules", path=str(package.archive), use="modules"))
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The number of nodes that the run wants now, and those to give back."""

    count: int
    surplus: tuple[str, ...] = ()


class ElasticSize:
    """The size of a cluster of one kind of nodes, from `least` to `most`. A node that has had no
    work for `idle_s` seconds is given back."""

    def __init__(self, least: int, most: int, *, idle_s: float) -> None:
        self._least = least
        self._most = most
        self._idle_s = idle_s
        self._idle_since: dict[str, float] = {}

    @property
    def pause_s(self) -> float:
        """The time between two calls of `scale`."""
        return min(_COUNT_S, max(_SHORTEST_COUNT_S, self._idle_s))

    def scale(self, demand: Demand, now: float) -> Scale:
        """The scale for the `demand` at `now` (seconds, of any clock). A node that was given
        back is not here any more, although its agent is still ending."""
        here = demand.here
        self._idle_since = {node: self._idle_since.get(node, now) for node in demand.idle}
        wanted = min(self._most, max(self._least, sum(demand.wanted.values())))
        rested = [n for n, since in self._idle_since.items() if now - since >= self._idle_s]
        surplus = tuple(rested[: max(0, len(here) - wanted)])
        # A node that is idle but not long enough still counts as wanted: it would come again.
        return Scale(count=max(wanted, len(here) - len(surplus)), surplus=surplus)
