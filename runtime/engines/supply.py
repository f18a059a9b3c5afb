"""The places of agents: which should get one, and when. Pure: no I/O.

A seat is a place that holds one agent: a host, a slot on this machine, or a machine of a running
cluster, whose members (such as Dask's workers) come and go. A seat whose agent has ended rests
before the next attempt, longer after each failure, so a host that comes back is used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.runtime.launcher import short_cause

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
        """True if it has an agent that nobody has given back."""
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
    """True if each seat that may be used was tried, and none has ever worked. A seat may be tried
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


# As many machines as no cluster has: all.
ALL = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of the cluster that can start an agent. `host` is its machine, which gets one
    agent; `label` names the member in messages."""

    key: str
    host: str
    label: str


class Roster:
    """One kind of seats that follow the members of a cluster. Times are seconds of any clock."""

    def __init__(self, kind: str, rest_s: float) -> None:
        self._kind = kind
        self._rest_s = rest_s
        self._members: list[Member] = []
        self._seats: dict[str, Seat] = {}
        self._used: dict[str, Member] = {}  # by ticket, also after it has left the cluster
        self.wanted = 0

    def know(self, members: Iterable[Member]) -> None:
        """These are all members now. A machine that has left keeps its seat while it is taken."""
        self._members = list(members)
        hosts = {member.host for member in self._members}
        for member in self._members:
            if member.host not in self._seats:
                self._seats[member.host] = Seat(name=member.host, kind=self._kind)
        for seat in list(self._seats.values()):
            if seat.name not in hosts and not seat.ticket:
                del self._seats[seat.name]

    def due(self, now: float) -> list[Member]:
        """The members on which an agent should be started now."""
        here = {member.host: member for member in reversed(self._members)}
        seats = [seat for seat in self._seats.values() if seat.ticket or seat.name in here]
        return [here[seat.name] for seat in due(seats, self._wish, now)]

    def next_due(self, now: float) -> float | None:
        """When `due` may return more; None if only another event can change that."""
        return next_due(self._seats.values(), self._wish, now)

    def take(self, ticket: str, member: Member, now: float) -> None:
        self._used[ticket] = member
        self._put(taken(self._seats[member.host], ticket, now))

    def begin(self, ticket: str) -> None:
        self._put(working(self._seats[self._used[ticket].host]))

    def give_back(self, ticket: str) -> None:
        self._put(given_back(self._seats[self._used[ticket].host]))

    def free(self, ticket: str, cause: str, now: float, *, worked: bool) -> None:
        """Its agent has ended; `worked` if it had been of use."""
        seat = self._seats[self._used.pop(ticket).host]
        free = freed(seat, now, cause, worked=worked, rest_s=self._rest_s)
        self._put(free)
        self.know(self._members)

    def knows(self, ticket: str) -> bool:
        """True if this agent was started and has not ended."""
        return ticket in self._used

    def begun(self, ticket: str) -> bool:
        return self.knows(ticket) and self._seats[self._used[ticket].host].works

    @property
    def used(self) -> dict[str, Member]:
        """The members with an agent, by ticket."""
        return dict(self._used)

    @property
    def hopeless(self) -> list[str]:
        """The causes, if every machine was tried and no agent has ever worked."""
        seats = list(self._seats.values())
        return [seat.cause for seat in seats] if are_hopeless(seats, self._wish) else []

    def missing(self, what: str) -> str:
        """What the user waits for, in words; `what` names members. "" for nothing."""
        if not self.wanted:
            return ""
        queued = [one.label for ticket, one in self._used.items() if not self.begun(ticket)]
        failed = failing(self._seats.values(), self._wish)
        # Whoever wants all that there are waits for none but the first.
        wanted = self.wanted if self.wanted < ALL else 1
        lacking = wanted - len(self._used) - sum(not seat.ticket for seat in failed)
        return "; ".join(
            [
                *(f"{label} has not started its agent yet" for label in sorted(queued)),
                *(failing_text(seat) for seat in failed),
                *([f"{lacking} more machine{'s' * (lacking > 1)} with {what}"] * (lacking > 0)),
            ]
        )

    @property
    def _wish(self) -> dict[str, int]:
        return {self._kind: self.wanted}

    def _put(self, seat: Seat) -> None:
        self._seats[seat.name] = seat
