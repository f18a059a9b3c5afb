"""The members of a running cluster, and which machine has which agent. Pure: no I/O.

A machine is a seat (`seats.py`). Members, such as Dask's workers, come and go.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.dataclass import dataclass
from holdfast.runtime.engines import seats as seating
from holdfast.runtime.engines.seats import Seat

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
        return [here[seat.name] for seat in seating.due(seats, self._wish, now)]

    def next_due(self, now: float) -> float | None:
        """When `due` may return more; None if only another event can change that."""
        return seating.next_due(self._seats.values(), self._wish, now)

    def take(self, ticket: str, member: Member, now: float) -> None:
        self._used[ticket] = member
        self._put(seating.taken(self._seats[member.host], ticket, now))

    def begin(self, ticket: str) -> None:
        self._put(seating.working(self._seats[self._used[ticket].host]))

    def give_back(self, ticket: str) -> None:
        self._put(seating.given_back(self._seats[self._used[ticket].host]))

    def free(self, ticket: str, cause: str, now: float, *, worked: bool) -> None:
        """Its agent has ended; `worked` if it had been of use."""
        seat = self._seats[self._used.pop(ticket).host]
        free = seating.freed(seat, now, cause, worked=worked, rest_s=self._rest_s)
        self._put(free)
        self.know(self._members)

    def knows(self, ticket: str) -> bool:
        """Whether this agent was started and has not ended."""
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
        return [seat.cause for seat in seats] if seating.are_hopeless(seats, self._wish) else []

    def missing(self, what: str) -> str:
        """What the user waits for, in words; `what` names members. "" for nothing."""
        if not self.wanted:
            return ""
        queued = [one.label for ticket, one in self._used.items() if not self.begun(ticket)]
        failing = seating.failing(self._seats.values(), self._wish)
        # Whoever wants all that there are waits for none but the first.
        wanted = self.wanted if self.wanted < ALL else 1
        lacking = wanted - len(self._used) - sum(not seat.ticket for seat in failing)
        return "; ".join(
            [
                *(f"{label} has not started its agent yet" for label in sorted(queued)),
                *(seating.failing_text(seat) for seat in failing),
                *([f"{lacking} more machine{'s' * (lacking > 1)} with {what}"] * (lacking > 0)),
            ]
        )

    @property
    def _wish(self) -> dict[str, int]:
        return {self._kind: self.wanted}

    def _put(self, seat: Seat) -> None:
        self._seats[seat.name] = seat
