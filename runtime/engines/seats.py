"""Which of its places an engine should start an agent at, and when. Pure: no I/O.

A seat is a place that holds one agent: a host, or a slot on this machine. A seat whose agent has
ended rests before the next attempt, longer after each failure, so a host that comes back is used
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.runtime.exit_cause import short_cause

REST_S = 1.0
LONGEST_REST_S = 60.0
# An agent that worked for this long is started again like a new one.
STEADY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A place for one agent. `ticket` is that of its agent; "" while it is free. `works`: the
    agent has begun to. `failures` counts attempts in a row that did not last; `cause` says how the
    last one ended."""

    name: str
    kind: str
    ticket: str = ""
    since: float = 0.0
    works: bool = False
    is_leaving: bool = False
    has_worked: bool = False
    failures: int = 0
    rests_until: float = 0.0
    cause: str = ""

    @property
    def is_held(self) -> bool:
        """Whether it has an agent that nobody has given back."""
        return bool(self.ticket) and not self.is_leaving


def taken(seat: Seat, ticket: str, now: float) -> Seat:
    """An agent was started."""
    return replace(seat, ticket=ticket, since=now, works=False, is_leaving=False)


def working(seat: Seat) -> Seat:
    """The agent has begun."""
    return replace(seat, works=True)


def given_back(seat: Seat) -> Seat:
    """The agent was ordered to end, and leaves a seat that is as good as new."""
    return replace(seat, is_leaving=True)


def freed(seat: Seat, now: float, cause: str, *, worked: bool, rest_s: float = REST_S) -> Seat:
    """The agent has ended; `worked` if it had begun to. The seat rests, for `rest_s` at least."""
    has_worked = seat.has_worked or worked
    free = replace(seat, ticket="", works=False, is_leaving=False, has_worked=has_worked)
    if seat.is_leaving:
        return replace(free, failures=0, rests_until=now, cause="")
    before = 0 if worked and now - seat.since >= STEADY_S else seat.failures
    rests_s = min(LONGEST_REST_S, rest_s * 2.0**before)
    return replace(free, failures=before + 1, rests_until=now + rests_s, cause=cause)


def due(seats: Iterable[Seat], wanted: Mapping[str, int], now: float) -> list[Seat]:
    """The seats at which an agent should be started now. Those that have failed come last."""
    found: list[Seat] = []
    for kind, count in wanted.items():
        ours = [seat for seat in seats if seat.kind == kind]
        missing = max(0, count - sum(seat.is_held for seat in ours))
        free = [seat for seat in ours if not seat.ticket and seat.rests_until <= now]
        found += sorted(free, key=lambda seat: seat.failures)[:missing]
    return found


def next_due(seats: Iterable[Seat], wanted: Mapping[str, int], now: float) -> float | None:
    """When `due` may find more than now; None if only another event can change that."""
    times = [
        seat.rests_until
        for kind, count in wanted.items()
        if (ours := [seat for seat in seats if seat.kind == kind])
        and sum(seat.is_held for seat in ours) < count
        for seat in ours
        if not seat.ticket and seat.rests_until > now
    ]
    return min(times, default=None)


def are_hopeless(seats: Sequence[Seat], wanted: Mapping[str, int]) -> bool:
    """Whether each seat that may be used was tried, and none has ever worked. A seat may be tried
    again while others are tried for the first time."""
    usable = [seat for seat in seats if wanted.get(seat.kind, 0)]
    nothing_works = all(seat.failures and not seat.works for seat in usable)
    return bool(usable) and nothing_works and not any(seat.has_worked for seat in seats)


def failing(seats: Iterable[Seat], wanted: Mapping[str, int]) -> list[Seat]:
    """The seats that have failed, of the kinds that have fewer working agents than wanted."""
    found: list[Seat] = []
    for kind, count in wanted.items():
        ours = [seat for seat in seats if seat.kind == kind]
        if sum(seat.works and seat.is_held for seat in ours) < count:
            found += [seat for seat in ours if seat.failures and not seat.works]
    return found


def failing_text(seat: Seat) -> str:
    """A seat that is tried again, and why."""
    return f"{seat.name} (tried again: {short_cause(seat.cause)})"
