"""What experiments that share resources ask for, and of whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.trial.resources import Allocation


@dataclass(frozen=True, slots=True, eq=False)
class CapacityRequest:
    """A request that waits. `granted` is called with the resources, in any thread."""

    amounts: Mapping[str, float]
    granted: Callable[[Allocation], None]


class CapacityShare(Protocol):
    """The resources of this machine that an experiment takes from, with others."""

    @property
    def has_gpus(self) -> bool:
        """Whether the machine has GPUs."""
        ...

    def take(
        self, amounts: Mapping[str, float], granted: Callable[[Allocation], None]
    ) -> Allocation | CapacityRequest:
        """The resources, now held; or the request, which `granted` answers later."""
        ...

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """Whether these resources are free now."""
        ...

    @property
    def keeps_idle(self) -> bool:
        """Whether a worker that no trial needs at the moment may keep its resources."""
        ...

    def yields(self) -> bool:
        """Whether an idle worker should end, because another experiment has less and waits."""
        ...

    def give_back(self, allocation: Allocation) -> None: ...

    def cancel(self, waiting: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        ...

    def waits_text(self, wanted: Allocation) -> str:
        """The message about a request that waits; "" for none."""
        ...
