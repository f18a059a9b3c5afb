"""The workers of a run: which one runs which attempt, from its launch to its exit, with the
resources that all experiments of this process use together.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.machine.fair_share import CapacityRequest, CapacityShare
from holdfast.experiment.progress.summary import RankWait
from holdfast.experiment.worker.job import Assignment, GroupTerms, Machine
from holdfast.experiment.workers.actor import TrialActor
from holdfast.experiment.workers.group import WorkerGroup
from holdfast.experiment.workers.hosts import WorkerHost, WorkerTimeouts
from holdfast.experiment.workers.ranks import NodeNames, PlacedRanks, place_ranks, place_worker
from holdfast.experiment.workers.start_checkpoints import (
    Preparation,
    PreparationHost,
    StartCheckpoints,
    setup_failure,
)
from holdfast.runtime.fleet.facts import own_address
from holdfast.runtime.wire import Message
from holdfast.scheduler.effects import Halt, Launch, Preempt, Verdict
from holdfast.scheduler.events import Event, Exited, Raised, Resumed
from holdfast.trial.errors import LOST_TYPES, Failure
from holdfast.trial.events import Returned
from holdfast.trial.resources import Allocation, Place
from holdfast.trial.trial import CheckpointRecord, Trial
from holdfast.trial.values import to_plain


class PoolHost(WorkerHost, PreparationHost, Protocol):
    """The owner of the worker pool."""


class WorkerPool:
    """Performs Launch, Preempt, Halt, Reply and Release, and is the host of its actors.

    They post their events here, and `post` passes them to `Controller.post`, which gives them to
    `Machine.handle`. A launch waits for resources (`launch`), then for a checkpoint
    (`Preparation.begin`), and then an actor runs it (`_create_actor`).
    """

    def __init__(
        self,
        host: PoolHost,
        *,
        layout: Layout,
        settings: Settings,
        resources: CapacityShare,
        gpu_names: tuple[str, ...],
        has_gpus: bool,
        group: GroupTerms | None,
        nodes: Mapping[str, NodeNames] = MappingProxyType({}),
    ) -> None:
        """`resources` are what trials take from. `nodes` are those of a cluster that have joined,
        by their names. `has_gpus`: this machine has some."""
        self.launcher = host.launcher
        self.show_line = host.show_line
        self._host = host
        self._settings = settings
        self._resources = resources
        self._group = group
        self._enforces_memory = bool(settings.enforce_memory)
        self._assigner = Assigner(
            gpu_names=gpu_names,
            has_gpus=has_gpus,
            has_ranks=group is not None,
            nodes=nodes,
        )
        self._loop = asyncio.get_running_loop()
        self._actors: dict[str, TrialActor | WorkerGroup] = {}
        self._held: dict[str, Allocation] = {}
        self._waiting: dict[str, tuple[Launch, CapacityRequest]] = {}
        # Idle workers, by the trial whose attempt they will run.
        self._reused: dict[str, TrialActor] = {}
        # Attempts that would have reused a worker, and take resources anew once it has ended.
        self._exchanged: dict[str, Launch] = {}
        self._preparation = Preparation(
            host,
            StartCheckpoints(host, layout, has_ranks=group is not None),
            start=self._start,
            fail=self._end_unstarted,
        )
        self._has_told = False

    @cached_property
    def _address(self) -> str:
        return own_address(os.environ)

    @property
    def _timeouts(self) -> WorkerTimeouts:
        config = self._host.machine.spec.failure
        return WorkerTimeouts(
            grace_s=self._settings.stop_grace_s,
            preemption_grace_s=config.preemption_grace_s,
            hang_timeout_s=config.hang_timeout_s,
            barrier_timeout_s=self._settings.barrier_timeout_s,
        )

    # -- what actors ask of their host --------------------------------------------------------

    def post(self, event: Event) -> None:
        if isinstance(event, Exited):
            self._give_back(event.trial_id)
            if (effect := self._exchanged.pop(event.trial_id, None)) is not None:
                self._take(replace(effect, reuse=None))
                return
        self._host.post(event)
        if isinstance(event, Returned):
            self._end_idle(event.trial_id)

    def _end_idle(self, trial_id: str) -> None:
        """End a worker that waits for the next trial, if others may need what it holds."""
        if trial_id in self._host.machine.placement.idle and not self._resources.keeps_idle:
            self.release(trial_id)

    def on_rank_message(self, message: Message) -> None:
        raise ValueError("only a rank sends this")

    def machines(self) -> list[Machine]:
        """The nodes of the run that are there, or this machine, with what its trials leave
        free."""
        placement = self._host.machine.placement
        if not placement.cluster.offer:
            host, capacity = socket.gethostname(), placement.capacity
            return [Machine(host, host, self._address, capacity.total, capacity.free)]
        free = placement.cluster.capacities
        return [
            Machine(name, node.hostname, node.address, free[name].total, free[name].free)
            for name, node in placement.cluster.nodes.items()
        ]

    def refusal(self, node: str) -> str:
        """Why a checkpoint cannot be stored from this node; "" if it can."""
        uploads = self._host.uploads
        return "" if uploads is None else uploads.nodes.refusal(node)

    def reported(self, trial_id: str) -> list[CheckpointRecord]:
        return list(self._host.machine.trials[trial_id].checkpoints)

    def note_shares(self, trial_id: str, index: int, left_out: Mapping[str, list[str]]) -> None:
        if self._host.uploads is not None:
            self._host.uploads.note_shares(trial_id, index, left_out)

    def has_room(self, trial_id: str) -> bool:
        """Whether an elastic trial could get another worker now; counts other experiments, too."""
        more = self._host.machine.trials[trial_id].next_bundle
        return more is not None and self._resources.has_room(more)

    def awaited(self, now: float) -> list[RankWait]:
        """The groups in which ranks wait for others at `now`; may be called from another
        thread."""
        groups = [actor for actor in list(self._actors.values()) if isinstance(actor, WorkerGroup)]
        return [wait for group in groups if (wait := group.awaited(now)) is not None]

    # -- what the controller orders -----------------------------------------------------------

    def inherit(self, trials: Iterable[Trial], resumed: Resumed | None) -> None:
        """Remember that these trials come from an earlier incarnation."""
        self._preparation.inherit(trials, resumed)

    def reply(self, trial_id: str, attempt: int, verdict: Verdict) -> None:
        """Answer the report of this attempt, if its worker is still there."""
        actor = self._actors.get(trial_id)
        if actor is not None and actor.assignment.attempt == attempt:
            actor.reply(verdict)

    def refuse(self, trial_id: str, text: str) -> None:
        """Make the waiting `report()` raise this text."""
        if trial_id in self._actors:
            self._actors[trial_id].refuse(text)

    def release(self, trial_id: str) -> None:
        """End an idle worker."""
        if trial_id in self._actors:
            self._actors[trial_id].release()

    def launch(self, effect: Launch) -> None:
        """Begin an attempt once no other experiment in this process holds its resources."""
        if effect.reuse is None:
            self._take(effect)
            return
        self._held[effect.trial_id] = self._held.pop(effect.reuse)
        reused = self._actors.pop(effect.reuse)
        assert isinstance(reused, TrialActor)  # groups are not reused
        if self._resources.yields():
            # The worker ends, so that another experiment gets its resources first.
            self._actors[effect.trial_id] = reused
            self._exchanged[effect.trial_id] = effect
            reused.dismiss(effect.trial_id, effect.attempt)
        else:
            self._reused[effect.trial_id] = reused
            self._preparation.begin(effect)

    def _take(self, effect: Launch) -> None:
        """Take the resources of an attempt, now or when they are free."""

        def granted(allocation: Allocation) -> None:
            try:
                self._loop.call_soon_threadsafe(self._granted, effect, allocation)
            except RuntimeError:  # the loop has ended meanwhile
                self._resources.give_back(allocation)

        taken = self._resources.take(effect.allocation, granted)
        if isinstance(taken, Allocation):
            self._held[effect.trial_id] = taken
            self._preparation.begin(effect)
        else:
            self._waiting[effect.trial_id] = (effect, taken)
            self._tell_that_it_waits(effect.allocation)

    def halt(self, effect: Halt) -> None:
        """End an attempt, also one that waits for resources or whose checkpoint is being read."""
        if not self._withdraw(effect) and effect.trial_id in self._actors:
            self._actors[effect.trial_id].halt(after_step=effect.after_step)

    def preempt(self, effect: Preempt) -> None:
        """Let an attempt save a checkpoint, and end it. One whose checkpoint is still being read
        has nothing to save."""
        message = "its machine will be taken away, and it had not started there yet"
        failure = Failure(kind="preempted", type_name=LOST_TYPES["preempted"], message=message)
        if not self._withdraw(effect, failure) and effect.trial_id in self._actors:
            self._actors[effect.trial_id].preempt(effect.why)

    def _withdraw(self, effect: Halt | Preempt, failure: Failure | None = None) -> bool:
        """Give up an attempt that no worker has got, with this failure if its checkpoint was being
        read. Returns whether there was one."""
        trial_id, attempt = effect.trial_id, effect.attempt
        if self._exchanged.pop(trial_id, None) is not None:
            return True  # the exit of the worker that it would have reused ends the attempt
        if (waiting := self._waiting.pop(trial_id, None)) is not None:
            self._resources.cancel(waiting[1])
        elif not self._preparation.cancel(trial_id):
            return False
        elif failure is not None:
            self.post(Raised(trial_id=trial_id, attempt=attempt, failure=failure))
        self._give_up(trial_id, attempt)
        return True

    def close(self) -> None:
        """Give back the resources of all workers; call it when they are gone."""
        for _, waiting in self._waiting.values():
            self._resources.cancel(waiting)
        self._waiting.clear()
        for trial_id in list(self._held):
            self._give_back(trial_id)

    # -- nodes --------------------------------------------------------------------------------

    def node_left(self, node: str) -> None:
        """A node is gone, and with it the attempts that wait for resources there."""
        for trial_id, (effect, waiting) in list(self._waiting.items()):
            if effect.allocation.is_on(node):
                del self._waiting[trial_id]
                self._resources.cancel(waiting)
                cause = f"was lost with the node {node} before it began"
                self.post(Exited(trial_id=trial_id, attempt=effect.attempt, cause=cause))

    # -- from the launch to the worker --------------------------------------------------------

    def _tell_that_it_waits(self, wanted: Allocation) -> None:
        if not self._has_told and (text := self._resources.waits_text(wanted)):
            self._has_told = True
            self._host.warn(text)

    def _granted(self, effect: Launch, allocation: Allocation) -> None:
        if self._waiting.get(effect.trial_id, (None,))[0] is not effect:
            self._resources.give_back(allocation)  # it was halted meanwhile
            return
        del self._waiting[effect.trial_id]
        self._held[effect.trial_id] = allocation
        self._preparation.begin(effect)

    def _give_back(self, trial_id: str) -> None:
        held = self._held.pop(trial_id, None)
        if held is not None:
            self._resources.give_back(held)

    def _end_unstarted(self, effect: Launch, failure: Failure) -> None:
        self.post(Raised(trial_id=effect.trial_id, attempt=effect.attempt, failure=failure))
        self._give_up(effect.trial_id, effect.attempt)

    def _give_up(self, trial_id: str, attempt: int) -> None:
        """End an attempt that no worker has got, and the worker that it would reuse."""
        reused = self._reused.pop(trial_id, None)
        if reused is None:
            self.post(Exited(trial_id=trial_id, attempt=attempt, cause="never started"))
        else:
            self._actors[trial_id] = reused
            reused.dismiss(trial_id, attempt)

    def _start(self, effect: Launch, trial: Trial) -> None:
        try:
            self._create_actor(effect, trial)
        except Exception as error:  # as above; a bug in holdfast fails each trial with its text
            self._end_unstarted(effect, setup_failure("its worker cannot be started", error))

    def _create_actor(self, effect: Launch, trial: Trial) -> None:
        """Let a new actor or group run the attempt, or the idle one that is reused."""
        held = self._held[trial.trial_id]
        assignment = self._assigner.assignment(effect, trial, held)
        if trial.trial_id in self._reused:
            self._reused[trial.trial_id].assign(assignment)
            self._actors[trial.trial_id] = self._reused.pop(trial.trial_id)
            return
        if self._group is not None:
            self._actors[trial.trial_id] = WorkerGroup(
                self,
                assignment,
                timeouts=self._timeouts,
                terms=self._group,
                warn=self._host.warn,
                enforces_memory=self._enforces_memory,
            )
            return
        self._actors[trial.trial_id] = TrialActor(
            self,
            assignment,
            timeouts=self._timeouts,
            reusable=self._host.machine.spec.reuse_actors,
            enforces_memory=self._enforces_memory,
        )


class Assigner:
    """Knows the names of the GPUs, here and on the nodes of a cluster.

    `has_gpus`: this machine has some, so that each worker must be shown its own. `has_ranks`:
    several workers train each trial. `nodes` are those that have joined, by their names.
    """

    def __init__(
        self,
        *,
        gpu_names: tuple[str, ...],
        has_gpus: bool,
        has_ranks: bool,
        nodes: Mapping[str, NodeNames],
    ) -> None:
        self._gpu_names = gpu_names
        self._has_gpus = has_gpus
        self._has_ranks = has_ranks
        self._nodes = nodes

    def assignment(self, effect: Launch, trial: Trial, held: Allocation) -> Assignment:
        """What the attempt of `effect` gets, with the resources that it holds."""
        resources = trial.granted
        placed = self._placed(resources.bundles, held.places)
        return Assignment(
            trial_id=trial.trial_id,
            trial_name=trial.spec.name,
            dirname=trial.spec.dirname,
            attempt=effect.attempt,
            config=to_plain(trial.config),
            iteration=trial.iteration,
            time_total_s=trial.time_total_s,
            next_checkpoint=trial.next_checkpoint,
            checkpoint=effect.checkpoint.dirname if effect.checkpoint else None,
            bundles=placed.bundles,
            strategy=resources.strategy,
            cpus=resources.required_resources.get("CPU", 1),
            gpus=self._gpus(held, placed),
            sets_gpus=self._sets_gpus(placed),
            nodes=placed.nodes,
        )

    def _placed(
        self, bundles: Sequence[Mapping[str, float]], places: Sequence[Place]
    ) -> PlacedRanks:
        if not places:
            return PlacedRanks(bundles=bundles, nodes=())
        place = place_ranks if self._has_ranks else place_worker
        return place(bundles, places, self._nodes)

    def _gpus(self, held: Allocation, placed: PlacedRanks) -> tuple[str, ...]:
        if placed.nodes:
            return tuple(placed.nodes[0].gpus)
        return tuple(self._gpu_names[gpu] for gpu in held.gpus)

    def _sets_gpus(self, placed: PlacedRanks) -> bool:
        """True if a machine of the trial has GPUs, which its workers must then not all see."""
        if placed.nodes:
            return any(self._nodes[node.name].gpus for node in placed.nodes)
        return self._has_gpus
