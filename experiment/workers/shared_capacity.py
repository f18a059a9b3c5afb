"""The resources that all experiments of this process hold together.

Each experiment counts the resources of its own trials. If several `fit()` run at once in threads,
an attempt takes its resources from the shared count before its worker starts, and waits while
another experiment holds them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from holdfast.experiment.machine.fair_share import CapacityRequest
from holdfast.scheduler.capacity import Capacity
from holdfast.trial.resources import Allocation


class SharedCapacity:
    """First come, first served, so that a large request is not starved by small ones."""

    def __init__(self, total: Mapping[str, float]) -> None:
        self._capacity = Capacity(total)
        self._queue: deque[CapacityRequest] = deque()
        self._lock = threading.Lock()

    @property
    def has_gpus(self) -> bool:
        """True if the machine has GPUs."""
        return "GPU" in self._capacity.total

    def take(
        self, amounts: Mapping[str, float], granted: Callable[[Allocation], None]
    ) -> Allocation | CapacityRequest:
        """The resources, now held; or the request, which `granted` answers later."""
        with self._lock:
            # A request for nothing never waits.
            is_next = not self._queue or not any(amounts.values())
            allocation = self._capacity.take(amounts) if is_next else None
            if allocation is not None:
                return allocation
            waiting = CapacityRequest(amounts, granted)
            self._queue.append(waiting)
            return waiting

    @property
    def free(self) -> dict[str, float]:
        """What is free now."""
        with self._lock:
            return self._capacity.free

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free now."""
        with self._lock:
            return not self._queue and self._capacity.has_room(amounts)

    @property
    def keeps_idle(self) -> bool:
        return True

    def yields(self) -> bool:
        """Never: a run gets what it returned again unless another one asked before."""
        return False

    def waits_text(self, wanted: Allocation) -> str:
        """The message about a request that waits."""
        return f"waiting for {dict(wanted.amounts)}, which another fit() in this process holds"

    def give_back(self, allocation: Allocation) -> None:
        self._serve(lambda: self._capacity.give_back(allocation))

    def cancel(self, waiting: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        found: list[CapacityRequest] = []

        def remove() -> None:
            if waiting in self._queue:
                self._queue.remove(waiting)
                found.append(waiting)

        self._serve(remove)
        return bool(found)

    def _serve(self, change: Callable[[], None]) -> None:
        served: list[tuple[CapacityRequest, Allocation]] = []
        with self._lock:
            change()
            while self._queue:
                allocation = self._capacity.take(self._queue[0].amounts)
                if allocation is None:
                    break
                served.append((self._queue.popleft(), allocation))
        for waiting, allocation in served:
            waiting.granted(allocation)


_known: WeakValueDictionary[frozenset[tuple[str, float]], SharedCapacity] = WeakValueDictionary()
_registering = threading.Lock()


def shared(total: Mapping[str, float]) -> SharedCapacity:
    """The shared count of all running experiments with the same total resources."""
    with _registering:
        key = frozenset(total.items())
        found = _known.get(key)
        if found is None:
            found = _known[key] = SharedCapacity(total)
        return found


def free_of(total: Mapping[str, float]) -> dict[str, float]:
    """What no running experiment of this process holds of these resources."""
    with _registering:
        found = _known.get(frozenset(total.items()))
    return dict(total) if found is None else found.free
