"""What one run takes of the resources that all experiments of this process use together."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.experiment.machine.capacity_request import CapacityRequest, CapacityShare
from holdfast.experiment.workers.shared_nodes import PlacesRequest, RunNodeShares, of_process
from holdfast.runtime.fleet.host import NodeFacts
from holdfast.trial.resources import Allocation

WaitingRequest = CapacityRequest | PlacesRequest


class RunResources:
    """Those of this machine and, if the run has nodes, those of their machines."""

    def __init__(self, capacity: CapacityShare, *, shares_nodes: bool = True) -> None:
        """`shares_nodes`: other runs of this process may use the same machines."""
        self.here = capacity
        self._shares = RunNodeShares(of_process) if shares_nodes else None

    def node_joined(self, facts: NodeFacts) -> bool:
        """Returns whether another run of this process uses the machine, too."""
        if self._shares is None:
            return False
        return self._shares.join(facts.name, facts.hostname, facts.gpus, facts.resources)

    def node_left(self, node: str) -> None:
        if self._shares is not None:
            self._shares.leave(node)

    def take(
        self, wanted: Allocation, granted: Callable[[Allocation], None]
    ) -> Allocation | WaitingRequest:
        """The resources, now held, perhaps with other GPUs; or the request, which `granted`
        answers later, in any thread."""
        if not wanted.places:
            return self.here.take(wanted.amounts, granted)
        return wanted if self._shares is None else self._shares.take(wanted, granted)

    def waits_text(self, wanted: Allocation) -> str:
        """The message about a request that waits; "" for none."""
        if not wanted.places:
            return self.here.waits_text(wanted)
        return (
            f"waiting for {dict(wanted.amounts)} on {', '.join(wanted.nodes)}, which another "
            f"fit() in this process holds"
        )

    def yields(self, held: Allocation) -> bool:
        """Whether an idle worker with these resources should end, for another experiment."""
        return not held.places and self.here.yields()

    def give_back(self, held: Allocation) -> None:
        if not held.places:
            self.here.give_back(held)
        elif self._shares is not None:
            self._shares.give_back(held)

    def cancel(self, waiting: WaitingRequest) -> None:
        """Withdraw a request, unless it is being granted."""
        if isinstance(waiting, CapacityRequest):
            self.here.cancel(waiting)
        elif self._shares is not None:
            self._shares.cancel(waiting)

    def close(self) -> None:
        """The run holds nothing any more."""
        if self._shares is not None:
            self._shares.close()
