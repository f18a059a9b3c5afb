"""Counts the resources of a machine, or of a node, and those that running trials hold. Never
overcommits.

Amounts are kept in ten-thousandths, so that three thirds of a GPU never exceed one GPU, and
released amounts add up exactly.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.trial.resources import Allocation, Place

_UNITS = 10_000
# What is free, for comparing: the sum of the GPUs' free shares, the CPUs, other resources, and
# the shares.
Level = tuple[Any, ...]


def units(amount: float) -> int:
    """The amount in ten-thousandths."""
    return round(amount * _UNITS)


class Capacity:
    """The resources of a machine. Trials take them and give them back; a GPU can be shared."""

    def __init__(self, total: Mapping[str, float]) -> None:
        self.total = dict(total)
        self._free = {key: units(amount) for key, amount in total.items() if key != "GPU"}
        self._gpus = [_UNITS] * int(total.get("GPU", 0))
        # Indices of entirely free GPUs, ascending: searching 4,000 GPUs at each launch was too
        # slow.
        self._whole = list(range(len(self._gpus)))

    @property
    def free(self) -> dict[str, float]:
        """The free resources; for GPUs the sum of the free shares."""
        free = {key: amount / _UNITS for key, amount in self._free.items()}
        return {**free, "GPU": sum(self._gpus) / _UNITS} if self._gpus else free

    @property
    def is_whole(self) -> bool:
        """True if nobody holds anything."""
        return self.free == Capacity(self.total).free

    @property
    def free_gpus(self) -> tuple[float, ...]:
        """The free share of each GPU, by its index."""
        return tuple(share / _UNITS for share in self._gpus)

    def ever_fits(self, amounts: Mapping[str, float]) -> bool:
        """True if the request would fit if everything were free."""
        for key, amount in amounts.items():
            if key != "GPU" and units(amount) > units(self.total.get(key, 0)):
                return False
        wanted = units(amounts.get("GPU", 0))
        count, rest = divmod(wanted, _UNITS)
        return count + bool(rest) <= len(self._gpus) and not (count and rest)

    def __repr__(self) -> str:
        return f"Capacity({self.total!r}, free={self.free!r}, gpus={self.free_gpus!r})"

    def copy(self) -> Capacity:
        """Another one with as much in total and free."""
        made = Capacity({})
        made.total, made._free = self.total, dict(self._free)
        made._gpus, made._whole = list(self._gpus), list(self._whole)
        return made

    def level(self, others: Sequence[str]) -> Level:
        """What is free of GPUs, CPUs and `others`. Where the level is the same, the same requests
        fit; where it is lower, less is left."""
        free, shares = self._free, self._gpus
        amounts = tuple([free.get(key, 0) for key in others])
        return sum(shares), free.get("CPU", 0), *amounts, tuple(sorted(shares))

    def room(self, amounts: Mapping[str, float], most: int) -> int:
        """How many such requests fit at once, up to `most`."""
        for key, amount in amounts.items():
            if key != "GPU" and (wanted := units(amount)):
                most = min(most, self._free.get(key, 0) // wanted)
        wanted = units(amounts.get("GPU", 0))
        if not wanted or not most:
            return most
        count, rest = divmod(wanted, _UNITS)
        if not count:
            return min(most, sum([share // wanted for share in self._gpus]))
        return 0 if rest else min(most, len(self._whole) // count)

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free now."""
        allocation = self.take(amounts)
        if allocation is not None:
            self.give_back(allocation)
        return allocation is not None

    def can_hold(self, allocation: Allocation | Place) -> bool:
        """True if these resources, with these GPUs, are free now."""
        share = min(units(allocation.amounts.get("GPU", 0)), _UNITS)
        return all(
            units(amount) <= self._free.get(key, 0)
            for key, amount in allocation.amounts.items()
            if key != "GPU"
        ) and all(self._gpus[gpu] >= share for gpu in allocation.gpus)

    def widen(self, total: Mapping[str, float]) -> None:
        """Have at least so much in total. The number of GPUs stays."""
        for key, amount in total.items():
            if key != "GPU" and (more := units(amount) - units(self.total.get(key, 0))) > 0:
                self._free[key] = self._free.get(key, 0) + more
                self.total[key] = amount

    def take(self, amounts: Mapping[str, float]) -> Allocation | None:
        """Take the resources if they are free; return None otherwise."""
        for key, amount in amounts.items():
            if key != "GPU" and units(amount) > self._free.get(key, 0):
                return None
        gpus = self._pick_gpus(units(amounts.get("GPU", 0)))
        if gpus is None:
            return None
        allocation = Allocation(amounts=dict(amounts), gpus=gpus)
        self.hold(allocation)
        return allocation

    def hold(self, allocation: Allocation | Place) -> None:
        """Count resources that are already held."""
        self._add(allocation, sign=-1)

    def give_back(self, allocation: Allocation | Place) -> None:
        self._add(allocation, sign=1)

    def _add(self, allocation: Allocation | Place, *, sign: int) -> None:
        for key, amount in allocation.amounts.items():
            if key != "GPU" and (some := units(amount)):
                self._free[key] += sign * some
        share = min(units(allocation.amounts.get("GPU", 0)), _UNITS)
        for gpu in allocation.gpus:
            was_whole = self._gpus[gpu] == _UNITS
            self._gpus[gpu] += sign * share
            if was_whole and share:
                del self._whole[bisect_left(self._whole, gpu)]
            elif share and self._gpus[gpu] == _UNITS:
                insort(self._whole, gpu)

    def _pick_gpus(self, wanted: int) -> tuple[int, ...] | None:
        """The indices of whole GPUs or, for a fraction, of the fullest GPU with room for it."""
        if not wanted:
            return ()
        if wanted < _UNITS:
            shared = [gpu for gpu, free in enumerate(self._gpus) if free >= wanted]
            return (min(shared, key=lambda gpu: self._gpus[gpu]),) if shared else None
        count, rest = divmod(wanted, _UNITS)
        return tuple(self._whole[:count]) if not rest and len(self._whole) >= count else None
