"""Which trials hold resources, which workers are idle, and which trials wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.kept import Rare, TrialId
from holdfast.trial.bounds import Stored
from holdfast.trial.resources import Allocation, Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The resources that a trial got; `reuse` names the trial whose idle worker it gets."""

    allocation: Allocation
    reuse: str | None = None


def _total(capacity: Capacity) -> Mapping[str, float]:
    return capacity.total


class Placement:
    """Each trial is in at most one of `holds`, `idle` and `queue`.

    A trial in `delayed` may not enter the queue yet. The queue is the keys of a dict, in order:
    with a list, resuming ten thousand trials at once took five seconds. These are indexes, derived
    from the trials: a scan per event costs 1 ms at 10,000 trials.
    """

    capacity: Annotated[Capacity, Stored(Capacity, _total, Amounts)]
    holds: dict[TrialId, Allocation]
    idle: dict[TrialId, Allocation]
    queue: Annotated[OrderedDict[TrialId, None], Stored(OrderedDict.fromkeys, list, Sequence[str])]
    delayed: Rare[set[TrialId]]

    def __init__(self, total: Mapping[str, float], *, queue: Iterable[str] = ()) -> None:
        self.capacity = Capacity(total)
        self.holds = {}
        self.idle = {}
        self.queue = OrderedDict.fromkeys(queue)
        self.delayed = set()

    @classmethod
    def restored(cls, **attributes: Any) -> Placement:
        """The placement that a snapshot describes."""
        made = cls({})
        vars(made).update(attributes)
        for held in (*made.holds.values(), *made.idle.values()):
            made.capacity.hold(held)
        return made

    @property
    def has_trials(self) -> bool:
        """Whether a trial runs, is queued, or waits for its retry."""
        return bool(self.holds or self.queue or self.delayed)

    def wait(self, trial_id: str) -> None:
        """Enter the queue, unless its last worker still exists or it is delayed."""
        if trial_id in self.holds or trial_id in self.delayed:
            return
        self.queue.setdefault(trial_id)

    def give_up(self, trial_id: str) -> None:
        """Leave the queue and stop waiting."""
        self.delayed.discard(trial_id)
        self.hold_back(trial_id)

    def hold_back(self, trial_id: str) -> None:
        """Leave the queue."""
        self.queue.pop(trial_id, None)

    def take(self, trial_id: str, amounts: Mapping[str, float]) -> Given | None:
        """Take the trial's resources from an idle worker or from the free ones; None if neither
        suffices."""
        own = self.idle.get(trial_id)
        if trial_id in self.holds or (own is not None and own.amounts != amounts):
            # Its previous worker still exists: it is ending, or idle with other resources.
            return None
        reuse = self._pick_idle(trial_id, amounts)
        allocation = self.idle.pop(reuse) if reuse else self.capacity.take(amounts)
        if allocation is None:
            return None
        self.holds[trial_id] = allocation
        return Given(allocation=allocation, reuse=reuse)

    def rest(self, trial_id: str) -> bool:
        """Keep the trial's resources for its worker, which is now idle; False if it held none."""
        allocation = self.holds.pop(trial_id, None)
        if allocation is not None:
            self.idle[trial_id] = allocation
        return allocation is not None

    def leave(self, trial_id: str) -> None:
        """Free the resources of the trial's worker, which has ended."""
        allocation = self.holds.pop(trial_id, None) or self.idle.pop(trial_id, None)
        if allocation is not None:
            self.capacity.give_back(allocation)

    def recall_idle(self) -> list[str]:
        """Take back the idle workers, which must end; until then they hold their resources."""
        recalled, self.idle = self.idle, {}
        self.holds.update(recalled)
        return list(recalled)

    def _pick_idle(self, trial_id: str, amounts: Mapping[str, float]) -> str | None:
        """The trial whose idle worker may serve: first its own, so that it never has two
        workers."""
        if trial_id in self.idle:
            return trial_id
        return next((old for old, held in self.idle.items() if held.amounts == amounts), None)
