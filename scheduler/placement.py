"""Which trials hold resources, which workers are idle, and which trials wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.kept import Kept, NotKept, TrialId
from holdfast.scheduler.nodes.cluster import Cluster, arrange, has_room, has_room_instead, serves
from holdfast.schema import Stored
from holdfast.trial.resources import Allocation, Amounts, PlacementGroupFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The resources that a trial got; `reuse` names the trial whose idle worker it gets."""

    allocation: Allocation
    reuse: str | None = None


def _total(capacity: Capacity) -> Mapping[str, float]:
    return capacity.total


class WaitsFor(StrEnum):
    """What a pending trial waits for that is not queued for resources.

    RETRY: the time of its next attempt. CHECKPOINT: an answer of storage, whether the checkpoint
    that it resumes from is there. PERSON: the person that has paused it.
    """

    RETRY = "retry"
    CHECKPOINT = "checkpoint"
    PERSON = "person"


def _plain_waits(waits: Mapping[str, WaitsFor]) -> dict[str, str]:
    return {trial_id: wait.value for trial_id, wait in waits.items()}


class Placement:
    """A trial is in at most one of `holds`, `idle`, `queue` and `waits`.

    The queue is the keys of a dict, in order: with a list, resuming ten thousand trials at once
    took five seconds. These are indexes, derived from the trials: a scan per event costs 1 ms at
    10,000 trials.

    Trials get their resources from the `cluster` if nodes may join, and otherwise from `capacity`,
    which is that of this machine.
    """

    cluster: NotKept[Cluster]
    capacity: Annotated[Capacity, Stored(Capacity, _total, Amounts)]
    holds: dict[TrialId, Allocation]
    idle: dict[TrialId, Allocation]
    queue: Annotated[OrderedDict[TrialId, None], Stored(OrderedDict.fromkeys, list, Sequence[str])]
    waits: Annotated[
        dict[TrialId, WaitsFor],
        Stored(dict, _plain_waits, dict[str, WaitsFor]),
        Kept(rare=True),
    ]

    def __init__(
        self,
        total: Mapping[str, float],
        *,
        queue: Iterable[str] = (),
        cluster: Cluster | None = None,
    ) -> None:
        self.cluster = Cluster() if cluster is None else cluster
        self.capacity = Capacity(total)
        self.holds = {}
        self.idle = {}
        self.queue = OrderedDict.fromkeys(queue)
        self.waits = {}

    @classmethod
    def restored(cls, **attributes: Any) -> Placement:
        """The placement that a snapshot describes."""
        made = cls({})
        vars(made).update(attributes)
        for held in (*made.holds.values(), *made.idle.values()):
            if held.places:
                made.cluster.hold(held.places)
            else:
                made.capacity.hold(held)
        return made

    @property
    def total(self) -> Mapping[str, float]:
        """The resources of the machine, or of all nodes that are there."""
        return self.cluster.total if self.cluster else self.capacity.total

    @property
    def has_trials(self) -> bool:
        """True if a trial runs, is queued, or waits for something other than a person."""
        if self.holds or self.queue:
            return True
        return any(wait is not WaitsFor.PERSON for wait in self.waits.values())

    @property
    def held(self) -> list[str]:
        """The ids of the trials that wait for a person, sorted."""
        return self.waiting_for(WaitsFor.PERSON)

    def waiting_for(self, *several: WaitsFor) -> list[str]:
        """The ids of the trials that wait for one of these, in this order, and sorted."""
        waits = self.waits
        return [one for wait in several for one in sorted(waits) if waits[one] is wait]

    def wait(self, trial_id: str, wait: WaitsFor | None = None, *, is_next: bool = False) -> None:
        """Wait for this and for nothing else; without a `wait`, enter the queue, with `is_next`
        before all others. Ignored while the trial's last worker exists, or it waits for its
        retry."""
        if trial_id in self.holds or self.waits.get(trial_id) is WaitsFor.RETRY:
            return
        if wait is not None:
            self.queue.pop(trial_id, None)
            self.waits[trial_id] = wait
            return
        self.waits.pop(trial_id, None)
        self.queue.setdefault(trial_id)
        if is_next:
            self.queue.move_to_end(trial_id, last=False)

    def leave_queue(self, trial_id: str) -> None:
        """Wait for nothing more, except for the time of a retry."""
        self.queue.pop(trial_id, None)
        if self.waits.get(trial_id) is not WaitsFor.RETRY:
            self.waits.pop(trial_id, None)

    def take(
        self, trial_id: str, resources: PlacementGroupFactory, near: str = ""
    ) -> Given | None:
        """Take the trial's resources from an idle worker or from the free ones; None if neither
        suffices. `near` is a node to prefer."""
        amounts = resources.required_resources
        own = self.idle.get(trial_id)
        if trial_id in self.holds or (own and not self._serves(own, amounts, resources)):
            # Its previous worker still exists: it is ending, or idle with other resources.
            return None
        reuse = self._pick_idle(trial_id, amounts, resources) if self.idle else None
        if reuse:
            allocation: Allocation | None = self.idle.pop(reuse)
        elif self.cluster:
            places = arrange(self.cluster, resources, near)
            allocation = Allocation(amounts=amounts, places=places) if places else None
        else:
            allocation = self.capacity.take(amounts)
        if allocation is None:
            return None
        self.holds[trial_id] = allocation
        return Given(allocation=allocation, reuse=reuse)

    def has_room(self, resources: PlacementGroupFactory) -> bool:
        """True if these resources are free now."""
        if self.cluster:
            return has_room(self.cluster, resources)
        return self.capacity.has_room(resources.required_resources)

    def can_add(
        self, trial_id: str, bundle: Mapping[str, float], resources: PlacementGroupFactory
    ) -> bool:
        """True if the trial, which would have `resources` then, could get another bundle."""
        if not self.cluster:
            return self.capacity.has_room(bundle)
        if self.cluster.find(bundle) is None:
            return False
        return has_room_instead(self.cluster, self.holds[trial_id].places, resources)

    def rest(self, trial_id: str) -> None:
        """Keep the trial's resources for its worker, which is now idle."""
        self.idle[trial_id] = self.holds.pop(trial_id)

    def leave(self, trial_id: str) -> Allocation | None:
        """Free the resources of the trial's worker, which has ended, and return them."""
        allocation = self.holds.pop(trial_id, None) or self.idle.pop(trial_id, None)
        if allocation is None:
            return None
        if allocation.places:
            self.cluster.give_back(allocation.places)
        else:
            self.capacity.give_back(allocation)
        return allocation

    def recall_idle(self, node: str = "") -> list[str]:
        """Take back the idle workers (those on `node`), which must end; until then they hold their
        resources."""
        recalled = {
            trial_id: held for trial_id, held in self.idle.items() if not node or held.is_on(node)
        }
        for trial_id in recalled:
            del self.idle[trial_id]
        self.holds.update(recalled)
        return list(recalled)

    def _pick_idle(
        self, trial_id: str, amounts: Mapping[str, float], resources: PlacementGroupFactory
    ) -> str | None:
        """The trial whose idle worker may serve: first its own, so that it never has two
        workers."""
        if trial_id in self.idle:
            return trial_id
        several = self.idle.items()
        return next((old for old, held in several if self._serves(held, amounts, resources)), None)

    def _serves(
        self, held: Allocation, amounts: Mapping[str, float], resources: PlacementGroupFactory
    ) -> bool:
        """True if a worker with this allocation may run a trial that asks for these resources."""
        if held.amounts != amounts:
            return False
        return not self.cluster or serves(held.places, resources)
