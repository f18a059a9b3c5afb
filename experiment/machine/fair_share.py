"""Requests for a part of this machine, and which of them several experiments take next. Pure.

Every experiment that shares the machine folds the same files to the same answer, and takes only
what is its own in it. So no process decides for others.

* The one that holds least comes first: its share is the largest part that it holds of any
  resource (dominant resource fairness, Ghodsi et al. 2011). Of equals, the one that has waited
  longest.
* Who comes first and finds no room yet has its resources kept free: those behind it take only
  what it does not need. So a large request is not starved by small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Protocol

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.scheduler.capacity import units
from holdfast.schema import Between, Count
from holdfast.trial.resources import Allocation, Amounts


@dataclass(frozen=True, slots=True, eq=False)
class CapacityRequest:
    """A request that waits. `granted` is called with the resources, in any thread."""

    wanted: Allocation
    granted: Callable[[Allocation], None]


class CapacityShare(Protocol):
    """The resources of its machines that an experiment takes from, with others."""

    def take(
        self, wanted: Allocation, granted: Callable[[Allocation], None]
    ) -> Allocation | CapacityRequest:
        """Take the resources, on other GPUs if its own are not free, or return a request, which
        `granted` answers later."""
        ...

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free now."""
        ...

    @property
    def keeps_idle(self) -> bool:
        """True if a worker that no trial needs at the moment may keep its resources."""
        ...

    def yields(self) -> bool:
        """True if an idle worker should end, because another experiment has less and waits."""
        ...

    def give_back(self, allocation: Allocation) -> None: ...

    def cancel(self, waiting: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        ...

    def waits_text(self, wanted: Allocation) -> str:
        """The message about a request that waits; "" for none."""
        ...


FORMAT = 1
_WHOLE = units(1)
Monotonic = Annotated[float, Between(0, 1e15)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one trial holds, with the names of its GPUs."""

    amounts: Amounts
    gpus: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A request that waits. `since` is a time of the machine's monotonic clock."""

    number: Count
    amounts: Amounts
    since: Monotonic = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An experiment, as it describes itself to the others. `total` is what it knows the machine
    to have, `uses` the most that it takes at once. `waits` are its requests, the oldest first."""

    format: Count = FORMAT
    pid: Count
    command: str
    experiment: str
    shares: bool
    total: Amounts
    uses: Amounts
    gpus: Sequence[str] = ()
    holds: Sequence[Claim] = ()
    waits: Sequence[Wish] = ()

    def __str__(self) -> str:
        named = f"experiment {self.experiment}" if self.experiment else ""
        facts = ", ".join(filter(None, (self.command, named)))
        return printable(f"process {self.pid} ({facts})")


Members = Mapping[str, Member]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A request that may be taken now, and with which GPUs."""

    name: str
    number: int
    claim: Claim


def due(members: Members) -> list[Due]:
    """All requests that may be taken now, in order."""
    found: list[Due] = []
    now = dict(members)
    while (one := _next(now)) is not None:
        found.append(one)
        now[one.name] = _granted(now[one.name], one)
    return found


def yields(members: Members, name: str) -> bool:
    """True if this experiment should give back what a trial of it held, although it could keep it
    for its next trial: another one waits in vain that has nothing, or would still have less."""
    total = total_of(members.values())
    mine = share(members[name], total)
    served = {one.name for one in due(members)}
    for other, its in members.items():
        if other == name or not its.waits or other in served:
            continue
        wish = Claim(amounts=its.waits[0].amounts)
        then = replace(its, holds=[*its.holds, wish])
        if share(its, total) == 0 or share(then, total) < mine:
            return True
    return False


def has_room(members: Members, name: str, amounts: Mapping[str, float]) -> bool:
    """True if the experiment could take this now, and nobody waits."""
    nobody_waits = not any(one.waits for one in members.values())
    return nobody_waits and _Free(members.values()).claim(members[name], amounts) is not None


def total_of(members: Iterable[Member]) -> dict[str, float]:
    """What the machine has: the most that any of them knows."""
    total: dict[str, float] = {}
    gpus: set[str] = set()
    for one in members:
        gpus.update(one.gpus)
        for key, amount in one.total.items():
            total[key] = max(amount, total.get(key, 0))
    return {**total, "GPU": float(len(gpus))} if gpus else total


def share(one: Member, total: Mapping[str, float]) -> float:
    """The largest part of any resource that it holds."""
    held: dict[str, int] = {}
    for claim in one.holds:
        for key, amount in claim.amounts.items():
            held[key] = held.get(key, 0) + units(amount)
    parts = (amount / units(total[key]) for key, amount in held.items() if total.get(key))
    return max(parts, default=0.0)


def _next(members: Members) -> Due | None:
    total, free = total_of(members.values()), _Free(members.values())
    waiting = [name for name, one in members.items() if one.waits]
    for name in sorted(waiting, key=lambda name: _turn(name, members[name], total)):
        one = members[name]
        wish = one.waits[0]
        claim = free.claim(one, wish.amounts)
        if claim is not None:
            return Due(name=name, number=wish.number, claim=claim)
        free.keep_for(one, wish.amounts)
    return None


def _turn(name: str, one: Member, total: Mapping[str, float]) -> tuple[float, float, str]:
    return share(one, total), one.waits[0].since, name


def _granted(one: Member, due: Due) -> Member:
    waits = [wish for wish in one.waits if wish.number != due.number]
    return replace(one, holds=[*one.holds, due.claim], waits=waits)


class _Free:
    """What nobody holds."""

    def __init__(self, members: Collection[Member]) -> None:
        total = total_of(members)
        self._amounts = {k: units(amount) for k, amount in total.items() if k != "GPU"}
        self._gpus = {gpu: _WHOLE for one in members for gpu in one.gpus}
        for one in members:
            for claim in one.holds:
                self._take(claim)

    def claim(self, one: Member, amounts: Mapping[str, float]) -> Claim | None:
        """The claim that serves this request; None if it does not fit."""
        for key, amount in _others(amounts):
            if amount > self._amounts.get(key, 0):
                return None
        gpus = self._pick(one.gpus, units(amounts.get("GPU", 0)))
        return None if gpus is None else Claim(amounts=dict(amounts), gpus=gpus)

    def keep_for(self, one: Member, amounts: Mapping[str, float]) -> None:
        """Let nobody else have what this request will need."""
        for key, amount in _others(amounts):
            self._amounts[key] = max(0, self._amounts.get(key, 0) - amount)
        if wanted := units(amounts.get("GPU", 0)):
            gpus = self._pick(one.gpus, wanted)
            for gpu in one.gpus if gpus is None else gpus:
                self._gpus[gpu] = max(0, self._gpus[gpu] - wanted)

    def _take(self, claim: Claim) -> None:
        for key, amount in _others(claim.amounts):
            self._amounts[key] = self._amounts.get(key, 0) - amount
        part = min(units(claim.amounts.get("GPU", 0)), _WHOLE)
        for gpu in claim.gpus:
            self._gpus[gpu] = self._gpus.get(gpu, _WHOLE) - part

    def _pick(self, own: Sequence[str], wanted: int) -> Sequence[str] | None:
        """Whole GPUs or, for a fraction, the fullest one with room for it."""
        if not wanted:
            return ()
        if wanted < _WHOLE:
            fits = [gpu for gpu in own if self._gpus[gpu] >= wanted]
            return (min(fits, key=lambda gpu: self._gpus[gpu]),) if fits else None
        whole = [gpu for gpu in own if self._gpus[gpu] == _WHOLE]
        count = wanted // _WHOLE
        return whole[:count] if len(whole) >= count else None


def _others(amounts: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    """All but the GPUs, in ten-thousandths."""
    yield from ((k, units(amount)) for k, amount in amounts.items() if k != "GPU" and amount)
