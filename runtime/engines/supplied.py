"""What all engines share that start one agent at each of their places."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.supply import PAUSE_S, Place, Supply
from holdfast.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long to wait, in seconds: for an agent to start, if only silence says that it does not;
    for one that was ordered to end; and before the second attempt at the same place."""

    answer_s: float = 60.0
    end_s: float = 10.0
    pause_s: float = PAUSE_S


# What to do about words of ssh and of the node's system.
_REMEDIES: Final[Mapping[str, str]] = {
    "Permission denied": "`ssh HOST true` must work without a password: set up a key. Write "
    "USER@HOST if the user has another name there",
    "Host key verification failed": "Log in once by hand (`ssh HOST`): ssh then asks whether the "
    "host's key is right",
    "Connection refused": "No ssh server listens there: start it, or name its port as HOST:PORT",
    "Connection timed out": "The host does not answer: is it up, and reachable from here?",
    "Could not resolve hostname": "Correct the name of the host, or add it to ~/.ssh/config",
    "No space left on device": "Free space on the node, or name a folder on another disk: "
    "scratch=... of the cluster",
}


def none_started(causes: Sequence[str]) -> str:
    """The error of an engine none of whose agents has ever worked."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    named = f"A node needs {python} with holdfast {VERSION}: python=... of the cluster names the "
    found = [remedy for words, remedy in _REMEDIES.items() if any(words in one for one in causes)]
    remedies = found or [f"{named}interpreter there"]
    return "\n".join(["No agent could be started.", *causes, *remedies])


class SuppliedEngine(ABC):
    """Implements `holdfast.runtime.engines.engine.Engine`, but for how an agent starts and ends.

    It refuses when each place was tried and no agent has ever worked. Otherwise it tries again,
    and says what it waits for.
    """

    over_pipe = False

    def __init__(self, kinds: Sequence[NodeKind], places: Iterable[Place], times: Times) -> None:
        self._kinds = tuple(kinds)
        self._supply = Supply(places, times.pause_s)
        self.times = times
        self._timer: asyncio.TimerHandle | None = None
        self._shown = ""
        self._is_stopped = False

    @abstractmethod
    def start_agent(self, place: Place, secret: bytes) -> None:
        """Start the agent of this place, which reads the invitation `secret`."""

    @abstractmethod
    def end_agent(self, place: Place) -> None:
        """End the agent of this place, which was given back."""

    def missing(self) -> str:
        """What the user waits for; "" for nothing."""
        return "; ".join(place.retry_text for place in self._supply.failing)

    def offer(self) -> Offer:
        return Offer(kinds=self._kinds)

    async def open(self, host: EngineHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    def want(self, kind: str, count: int) -> None:
        """Raises ValueError for a kind that is not offered."""
        if kind not in {known.name for known in self._kinds}:
            raise ValueError(f"there are no nodes of the kind {kind!r}")
        if self._supply.wanted.get(kind, 0) != count:
            self._supply.wanted[kind] = count
            self.plan()

    def ask(self, ticket: str) -> None:  # noqa: B027
        """The end of each agent is noticed by itself."""

    def give_back(self, ticket: str) -> None:
        if (place := self._supply.of(ticket)) is not None:
            place.is_leaving = True
            self.end_agent(place)
            self.plan()

    def refuse(self, why: str) -> None:
        """The engine can supply no nodes any more."""
        if not self._is_stopped:
            self.stop()
            self._host.refused(why)

    def stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def plan(self) -> None:
        """Start what is due, one agent in each turn of the loop, and again when more may be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_stopped:
            return
        now = self._loop.time()
        due = now if self._supply.due(now) else self._supply.next_due(now)
        if due is not None:
            self._timer = self._loop.call_at(due, self._start_next)
        if (text := self.missing()) != self._shown:
            self._shown = text
            self._host.waits(text)

    def _start_next(self) -> None:
        now = self._loop.time()
        for place in self._supply.due(now)[:1]:
            try:
                invitation = self._host.invite(place.kind, over_pipe=self.over_pipe)
            except EngineFailed as error:
                self.refuse(str(error))
                return
            place.ticket, place.since = invitation.ticket, now
            self.start_agent(place, invitation.secret)
        self.plan()

    def ended(self, place: Place, cause: str, *, worked: bool) -> None:
        """The agent of this place has ended; `worked` if it was of use."""
        ticket = place.ticket
        self._supply.end(place, cause, self._loop.time(), worked=worked)
        self._host.gone(ticket, cause)
        if causes := self._supply.hopeless:
            self.refuse(none_started(causes))
        else:
            self.plan()
