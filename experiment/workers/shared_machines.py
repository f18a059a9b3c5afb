"""The resources that all runs of this process use together: of this machine, or of nodes.

Each run counts the resources of its own trials. If several `fit()` run at once in threads, an
attempt takes its resources from the shared count of its machines before its worker starts, and
waits while another run holds them.

Each run on a cluster has agents of its own, which may be on the same machines as those of another
run. Such a machine is known by its host name and the GPUs that an agent sees there; of several
such agents of one run, each is a machine of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.experiment.machine.fair_share import CapacityRequest
from holdfast.experiment.worker.job import Machine
from holdfast.scheduler.capacity import Capacity
from holdfast.trial.resources import Allocation, Place

# Host name, GPUs, and a number among equal ones of one run. Of this machine "" and its resources:
# runs that know it to have others do not share it.
Key = tuple[str, tuple[Any, ...], int]
Granted = Callable[[Allocation], None]


class SharedMachines:
    """What is free on each machine. First come, first served, for each machine: so a large request
    is not starved by small ones."""

    def __init__(self) -> None:
        self._capacities: dict[Key, Capacity] = {}
        self._runs: dict[Key, list[RunMachines]] = {}
        # The requests that wait, each with the machines of its parts.
        self._queue: dict[CapacityRequest, Sequence[Key]] = {}
        self._lock = threading.Lock()

    def enter(self, key: Key, resources: Mapping[str, float], run: RunMachines) -> bool:
        """The run uses this machine. Returns whether another one does, too."""
        with self._lock:
            if key in self._capacities:
                self._capacities[key].widen(resources)
            else:
                self._capacities[key] = Capacity(resources)
            runs = self._runs.setdefault(key, [])
            runs.append(run)
            return any(other is not run for other in runs)

    def leave(self, key: Key, run: RunMachines) -> None:
        """The run does not use this machine any more, and holds nothing. What it was just granted
        is still on its way to it, and comes back later."""
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
        """The nodes on which a run has an agent now, named as in the first such run."""
        with self._lock:
            return [
                Machine(runs[0].name_of(key), key[0], "", capacity.total, capacity.free)
                for key, capacity in self._capacities.items()
                if key[0] and (runs := self._runs.get(key))
            ]

    def free_here(self, total: Mapping[str, float]) -> dict[str, float]:
        """What no run holds of this machine, which has `total`."""
        with self._lock:
            capacity = self._capacities.get(_here(total))
            return dict(total) if capacity is None else capacity.free

    def has_room(self, key: Key, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free now, and nobody waits."""
        with self._lock:
            is_awaited = any(key in keys for keys in self._queue.values())
            return not is_awaited and self._capacities[key].has_room(amounts)

    def take(
        self, keys: Sequence[Key], wanted: Allocation, granted: Granted
    ) -> Allocation | CapacityRequest:
        """Take the resources, or return a request, which `granted` answers later."""
        request = CapacityRequest(wanted, granted)
        with self._lock:
            self._queue[request] = keys
            served = self._serve()
        return next((found for one, found in served if one is request), request)

    def give_back(self, keys: Sequence[Key], allocation: Allocation) -> None:
        with self._lock:
            for key, part in zip(keys, _parts(allocation), strict=True):
                self._capacities[key].give_back(part)
            served = self._serve()
            self._forget(keys)
        for request, found in served:
            request.granted(found)

    def cancel(self, request: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        with self._lock:
            is_waiting = self._queue.pop(request, None) is not None
            served = self._serve()
        for one, found in served:
            one.granted(found)
        return is_waiting

    def _serve(self) -> list[tuple[CapacityRequest, Allocation]]:
        """Take what is free for those that wait. Who waits for a machine has it before others that
        came later, unless these need nothing."""
        served, blocked = [], set[Key]()
        for request, keys in list(self._queue.items()):
            needs = any(any(part.amounts.values()) for part in _parts(request.wanted))
            is_blocked = needs and not blocked.isdisjoint(keys)
            found = None if is_blocked else self._hold(keys, request.wanted)
            if found is None:
                blocked.update(keys)
            else:
                del self._queue[request]
                served.append((request, found))
        return served

    def _hold(self, keys: Sequence[Key], wanted: Allocation) -> Allocation | None:
        """All of it, perhaps with other GPUs; None if a part does not fit."""
        held: list[Any] = []
        for key, part in zip(keys, _parts(wanted), strict=True):
            found = _taken(self._capacities[key], part)
            if found is None:
                for other, at in zip(held, keys, strict=False):
                    self._capacities[at].give_back(other)
                return None
            held.append(found)
        return replace(wanted, places=tuple(held)) if wanted.places else held[0]


def _here(total: Mapping[str, float]) -> Key:
    return "", tuple(sorted(total.items())), 0


def _parts(allocation: Allocation) -> Sequence[Allocation | Place]:
    """What it has on each machine."""
    return allocation.places or (allocation,)


def _taken(capacity: Capacity, part: Allocation | Place) -> Allocation | Place | None:
    """The part, on a node with other GPUs only if its own are not free; None if it does not
    fit."""
    if isinstance(part, Place) and capacity.can_hold(part):
        capacity.hold(part)
        return part
    taken = capacity.take(part.amounts)
    return None if taken is None else replace(part, gpus=taken.gpus)


class RunMachines:
    """The machines of one run among those of all: this one, or nodes that join and leave. A
    `CapacityShare`."""

    keeps_idle = True

    def __init__(self, shared: SharedMachines, total: Mapping[str, float] | None = None) -> None:
        """`total` is what this machine has; None for a run on nodes."""
        self._shared = shared
        self._keys: dict[str, Key] = {}  # of all nodes, also of those that have left
        self._there: set[str] = set()
        self._entered: list[Key] = []
        if total is not None:
            self._enter("", _here(total), total)

    def _enter(self, node: str, key: Key, resources: Mapping[str, float]) -> bool:
        self._keys[node] = key
        self._there.add(node)
        self._entered.append(key)
        return self._shared.enter(key, resources, self)

    def join(
        self, node: str, hostname: str, gpus: Sequence[str], resources: Mapping[str, float]
    ) -> bool:
        """A node has joined. Returns whether another run of this process uses it, too."""
        taken, number = {self._keys[name] for name in self._there}, 0
        while (key := (hostname, tuple(gpus), number)) in taken:
            number += 1
        return self._enter(node, key, resources)

    def name_of(self, key: Key) -> str:
        """The newest name of the node there."""
        return next((name for name in reversed(self._keys) if self._keys[name] == key), key[0])

    def leave(self, node: str) -> None:
        """A node is gone. What its workers held is given back when they are."""
        self._there.discard(node)

    def _keys_of(self, allocation: Allocation) -> list[Key]:
        return [self._keys[place.node] for place in allocation.places] or [self._keys[""]]

    def take(self, wanted: Allocation, granted: Granted) -> Allocation | CapacityRequest:
        """Take the resources, on other GPUs if its own are not free, or return a request, which
        `granted` answers later."""
        return self._shared.take(self._keys_of(wanted), wanted, granted)

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free on this machine now. On nodes the machine decides."""
        return "" not in self._keys or self._shared.has_room(self._keys[""], amounts)

    def yields(self) -> bool:
        """Never: a run gets what it returned again unless another one asked before."""
        return False

    def give_back(self, allocation: Allocation) -> None:
        self._shared.give_back(self._keys_of(allocation), allocation)

    def cancel(self, waiting: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        return self._shared.cancel(waiting)

    def waits_text(self, wanted: Allocation) -> str:
        """The message about a request that waits."""
        there = wanted.places and f" on {', '.join(wanted.nodes)}"
        return (
            f"waiting for {dict(wanted.amounts)}{there or ''}, which another fit() in this "
            f"process holds"
        )

    def close(self) -> None:
        """The run holds nothing any more."""
        while self._entered:
            self._shared.leave(self._entered.pop(), self)
        self._there.clear()


# One for the process: threads that call fit() share it.
of_process = SharedMachines()
