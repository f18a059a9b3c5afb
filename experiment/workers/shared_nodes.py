"""The nodes that all experiments of this process use together.

Each run on a cluster has agents of its own. If several `fit()` run at once in threads, their
agents may be on the same machines, so an attempt takes its places from the shared count of these
machines before its worker starts. A machine is known by its host name and the GPUs that an agent
sees there; of several such agents of one run, each is a machine of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import Machine
from holdfast.scheduler.capacity import Capacity
from holdfast.trial.resources import Allocation, Place

# Host name, GPUs, and a number among equal ones of one run.
Key = tuple[str, tuple[str, ...], int]


@dataclass(frozen=True, slots=True, eq=False)
class PlacesRequest:
    """A request that waits. `granted` is called with the resources, in any thread. `keys` has the
    machine of each place."""

    allocation: Allocation
    keys: Sequence[Key]
    granted: Callable[[Allocation], None]


class SharedNodes:
    """What is free on each machine. First come, first served, for each machine."""

    def __init__(self) -> None:
        self._capacities: dict[Key, Capacity] = {}
        self._runs: dict[Key, list[RunNodeShares]] = {}
        self._queue: list[PlacesRequest] = []
        self._lock = threading.Lock()

    def enter(self, key: Key, resources: Mapping[str, float], run: RunNodeShares) -> bool:
        """The run has an agent there. Returns whether another one has, too."""
        with self._lock:
            if key in self._capacities:
                self._capacities[key].widen(resources)
            else:
                self._capacities[key] = Capacity(resources)
            runs = self._runs.setdefault(key, [])
            runs.append(run)
            return any(other is not run for other in runs)

    def leave(self, key: Key, run: RunNodeShares) -> None:
        """The run has no agent there any more, and holds nothing. What it was just granted is
        still on its way to it, and comes back later."""
        with self._lock:
            self._runs[key].remove(run)
            if not self._runs[key]:
                del self._runs[key]
            self._forget([key])

    def _forget(self, keys: Sequence[Key]) -> None:
        """Forget those of these machines that no run uses."""
        for key in keys:
            capacity = self._capacities.get(key)
            if capacity is not None and key not in self._runs and capacity.is_whole:
                del self._capacities[key]

    def machines(self) -> list[Machine]:
        """Those on which a run has an agent now, named as in the first such run."""
        with self._lock:
            return [
                Machine(runs[0].name_of(key), key[0], "", capacity.total, capacity.free)
                for key, capacity in self._capacities.items()
                if (runs := self._runs.get(key))
            ]

    def take(self, request: PlacesRequest) -> Allocation | None:
        """The resources, now held; None if the request waits."""
        with self._lock:
            self._queue.append(request)
            served = self._serve()
        return next((found for one, found in served if one is request), None)

    def give_back(self, keys: Sequence[Key], allocation: Allocation) -> None:
        with self._lock:
            for key, place in zip(keys, allocation.places, strict=True):
                self._capacities[key].give_back(place)
            served = self._serve()
            self._forget(keys)
        for request, found in served:
            request.granted(found)

    def cancel(self, request: PlacesRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        with self._lock:
            is_waiting = request in self._queue
            if is_waiting:
                self._queue.remove(request)
            served = self._serve()
        for one, found in served:
            one.granted(found)
        return is_waiting

    def _serve(self) -> list[tuple[PlacesRequest, Allocation]]:
        """Take what is free for those that wait. Who waits for a machine has it before others that
        came later."""
        served, blocked = [], set[Key]()
        for request in list(self._queue):
            found = None if blocked.intersection(request.keys) else self._place(request)
            if found is None:
                blocked.update(request.keys)
            else:
                self._queue.remove(request)
                served.append((request, found))
        return served

    def _place(self, request: PlacesRequest) -> Allocation | None:
        taken: list[Place] = []
        for key, place in zip(request.keys, request.allocation.places, strict=True):
            found = _taken(self._capacities[key], place)
            if found is None:
                for held, at in zip(taken, request.keys, strict=False):
                    self._capacities[at].give_back(held)
                return None
            taken.append(found)
        return replace(request.allocation, places=tuple(taken))


class RunNodeShares:
    """The nodes of one run among those of all."""

    def __init__(self, shared: SharedNodes) -> None:
        self._shared = shared
        self._keys: dict[str, Key] = {}  # of all nodes, also of those that have left
        self._there: set[str] = set()
        self._entered: list[Key] = []

    def join(
        self, node: str, hostname: str, gpus: Sequence[str], resources: Mapping[str, float]
    ) -> bool:
        """A node has joined. Returns whether another experiment of this process uses it, too."""
        taken, number = {self._keys[name] for name in self._there}, 0
        while (key := (hostname, tuple(gpus), number)) in taken:
            number += 1
        self._keys[node] = key
        self._there.add(node)
        self._entered.append(key)
        return self._shared.enter(key, resources, self)

    def name_of(self, key: Key) -> str:
        """The newest name of the node there."""
        return next((name for name in reversed(self._keys) if self._keys[name] == key), key[0])

    def leave(self, node: str) -> None:
        """A node is gone. What its workers held is given back when they are."""
        self._there.discard(node)

    def take(
        self, allocation: Allocation, granted: Callable[[Allocation], None]
    ) -> Allocation | PlacesRequest:
        """The places, now held, perhaps with other GPUs; or the request, which `granted` answers
        later."""
        keys = [self._keys[place.node] for place in allocation.places]
        request = PlacesRequest(allocation, keys, granted)
        return self._shared.take(request) or request

    def give_back(self, allocation: Allocation) -> None:
        keys = [self._keys[place.node] for place in allocation.places]
        self._shared.give_back(keys, allocation)

    def cancel(self, request: PlacesRequest) -> bool:
        return self._shared.cancel(request)

    def close(self) -> None:
        """The run holds nothing any more."""
        while self._entered:
            self._shared.leave(self._entered.pop(), self)
        self._there.clear()


def _taken(capacity: Capacity, place: Place) -> Place | None:
    """The place, with other GPUs if its own are not free; None if it does not fit."""
    if capacity.can_hold(place):
        capacity.hold(place)
        return place
    taken = capacity.take(place.amounts)
    return None if taken is None else replace(place, gpus=taken.gpus)


# One for the process: threads that call fit() share it.
of_process = SharedNodes()
