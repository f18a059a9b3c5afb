"""The supply of agents: which place should get one, and when. Pure: no I/O.

A place holds one agent: a host, a slot on this machine, or a machine of a running cluster, whose
members (such as Dask's workers) come and go. After its agent has ended, a place pauses before the
next attempt, longer after each failure, so a host that comes back is used again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.runtime.launcher import short_cause

PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
# An agent that worked for this long is started again like a new one.
STEADY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The pause before the next attempt: twice as long after each failure in a row. `cause` is
    that of the last failure, and `until` the end of the pause by any clock."""

    least_s: float = PAUSE_S
    failures: int = 0
    until: float = 0.0
    cause: str = ""

    def after_failure(self, now: float, cause: str, *, in_a_row: bool = True) -> Backoff:
        """The pause from `now` on. Without `in_a_row`, the failures before do not count."""
        before = self.failures if in_a_row else 0
        # A host may be down for days: without a limit, the power would become too large.
        pause_s = min(LONGEST_PAUSE_S, self.least_s * 2.0 ** min(before, 30))
        return replace(self, failures=before + 1, until=now + pause_s, cause=cause)

    def after_success(self) -> Backoff:
        """No pause."""
        return Backoff(least_s=self.least_s)

    def is_over(self, now: float) -> bool:
        """True if the next attempt may begin."""
        return now >= self.until


@dataclass(slots=True, kw_only=True)
class Place:
    """A place for one agent. `ticket` is that of its agent; "" while it is free. `has_begun`: this
    agent has begun; `is_leaving`: it was ordered to end; `has_worked`: one was of use here.
    `member` is the process of the cluster that starts the agent, and `label` its name in messages.
    """

    name: str
    kind: str
    member: str = ""
    label: str = ""
    ticket: str = ""
    since: float = 0.0
    has_begun: bool = False
    is_leaving: bool = False
    has_worked: bool = False
    backoff: Backoff = Backoff()

    @property
    def is_held(self) -> bool:
        """True if it has an agent that nobody has given back."""
        return bool(self.ticket) and not self.is_leaving

    @property
    def retry_text(self) -> str:
        """The place, and why it is tried again."""
        return f"{self.name} (tried again: {short_cause(self.backoff.cause)})"


class Supply:
    """The places of an engine, and how many nodes of each kind are `wanted`."""

    def __init__(self, places: Iterable[Place] = (), pause_s: float = PAUSE_S) -> None:
        """`pause_s` is the first pause after a failure."""
        self.places: dict[str, Place] = {}
        self.wanted: dict[str, int] = {}
        self._unused = Backoff(least_s=pause_s)
        self.know(places)

    def know(self, places: Iterable[Place]) -> None:
        """Replace the places by these; of several with one name, the first one counts. A place
        that is missing stays while it has an agent."""
        self._here: dict[str, Place] = {}
        for place in places:
            self._here.setdefault(place.name, place)
        self._update()

    def _update(self) -> None:
        for name, new in self._here.items():
            if name not in self.places:
                self.places[name] = replace(new, backoff=self._unused)
            place = self.places[name]
            if not place.ticket:
                place.member, place.label = new.member, new.label
        for place in list(self.places.values()):
            if place.name not in self._here and not place.ticket:
                del self.places[place.name]

    def due(self, now: float) -> list[Place]:
        """Where an agent should be started now. Places that have failed come last."""
        found: list[Place] = []
        for kind in self.wanted:
            free = [p for p in self._of(kind) if not p.ticket and p.backoff.is_over(now)]
            free.sort(key=lambda place: place.backoff.failures)
            found += free[: self._lacking(kind)]
        return found

    def next_due(self, now: float) -> float | None:
        """When `due` may find more than now; None if only another event can change that."""
        times = [
            place.backoff.until
            for kind in self.wanted
            if self._lacking(kind)
            for place in self._of(kind)
            if not place.ticket and not place.backoff.is_over(now)
        ]
        return min(times, default=None)

    def of(self, ticket: str) -> Place | None:
        """The place of this agent; None if it was never started, or has ended."""
        return next((place for place in self.used if place.ticket == ticket), None)

    @property
    def used(self) -> list[Place]:
        """The places with an agent."""
        return [place for place in self.places.values() if place.ticket]

    def end(self, place: Place, cause: str, now: float, *, worked: bool) -> None:
        """Free the place of an agent that has ended; `worked` if it was of use."""
        if place.is_leaving:
            place.backoff = place.backoff.after_success()
        else:
            is_steady = worked and now - place.since >= STEADY_S
            place.backoff = place.backoff.after_failure(now, cause, in_a_row=not is_steady)
        place.has_worked = place.has_worked or worked
        place.ticket, place.has_begun, place.is_leaving = "", False, False
        self._update()

    @property
    def hopeless(self) -> list[str]:
        """The causes, if each place that may be used was tried and no agent has ever worked. A
        place may be tried again while others are tried for the first time."""
        usable = [place for place in self.places.values() if self.wanted.get(place.kind, 0)]
        failed = [place for place in usable if place.backoff.failures and not place.has_begun]
        if not usable or len(failed) < len(usable):
            return []
        every = self.places.values()
        causes = [place.backoff.cause for place in every if place.backoff.cause]
        return [] if any(place.has_worked for place in every) else causes

    @property
    def failing(self) -> list[Place]:
        """The places that have failed, of the kinds that have fewer working agents than wanted."""
        found: list[Place] = []
        for kind, count in self.wanted.items():
            ours = self._of(kind)
            if sum(place.has_begun and place.is_held for place in ours) < count:
                found += [p for p in ours if p.backoff.failures and not p.has_begun]
        return found

    def _of(self, kind: str) -> list[Place]:
        return [place for place in self.places.values() if place.kind == kind]

    def _lacking(self, kind: str) -> int:
        return max(0, self.wanted[kind] - sum(place.is_held for place in self._of(kind)))
