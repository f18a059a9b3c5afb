"""An engine with seats: it runs a command for each agent, and tries again where one has ended.

`Local` and `SSH` differ only in the command for a seat.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.runtime.deadlines import happens
from holdfast.runtime.engines import seats as seating
from holdfast.runtime.engines.agent_process import AgentPipe, AgentProcess, Job
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.seats import Seat
from holdfast.runtime.stopped import Watched
from holdfast.version import VERSION

# The part of the time to close that is left for what has to be killed.
_FOR_KILLS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long to wait, in seconds: for an agent to start, if only silence says that it does not;
    for one that was ordered to end; and before the second attempt at the same place."""

    answer_s: float = 60.0
    end_s: float = 10.0
    rest_s: float = seating.REST_S


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


class SeatedEngine(ABC):
    """Implements `holdfast.runtime.engines.engine.Engine`.

    It refuses when each seat was tried and no agent has ever worked. Otherwise it tries again,
    and says what it waits for.
    """

    def __init__(self, kinds: Sequence[NodeKind], seats: Sequence[Seat], times: Times) -> None:
        self._kinds = tuple(kinds)
        self._seats = {seat.name: seat for seat in seats}
        self.times = times
        self._wanted: dict[str, int] = {}
        self._running: dict[str, AgentProcess] = {}  # by the name of the seat
        self._timer: asyncio.TimerHandle | None = None
        self._waits = ""
        self._is_closing = False
        self._all_ended = asyncio.Event()

    @abstractmethod
    def job_at(self, seat: str) -> Job:
        """The job that runs an agent at the seat of this name."""

    @property
    def tickets(self) -> list[str]:
        """Those of the agents that run."""
        return [seat.ticket for seat in self._seats.values() if seat.ticket]

    def refuse(self, why: str) -> None:
        """The engine can supply no nodes any more."""
        if self._is_closing:
            return
        self._stop()
        for process in list(self._running.values()):
            process.end("no agent could be started", self.times.end_s)
        self._host.refused(why)

    def offer(self) -> Offer:
        return Offer(kinds=self._kinds)

    async def open(self, host: EngineHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    def want(self, kind: str, count: int) -> None:
        if kind not in {known.name for known in self._kinds}:
            raise ValueError(f"there are no nodes of the kind {kind!r}")
        if self._wanted.get(kind, 0) != count:
            self._wanted[kind] = count
            self._plan()

    def ask(self, ticket: str) -> None:  # noqa: B027
        """The end of each command is noticed by itself."""

    def give_back(self, ticket: str) -> None:
        for seat in list(self._seats.values()):
            if ticket and seat.ticket == ticket:
                self._seats[seat.name] = seating.given_back(seat)
                self._running[seat.name].end("was given back", self.times.end_s)
                self._plan()

    def processes(self) -> list[Watched]:
        return [
            Watched(process.pid, f"the process of {name}", process.kill)
            for name, process in self._running.items()
        ]

    def kill(self) -> None:
        self._stop()
        for process in self._running.values():
            process.kill("the run was aborted")

    async def close(self, grace_s: float) -> str:
        self._stop()
        for name, process in list(self._running.items()):
            if process.is_elsewhere and self._seats[name].is_leaving:
                # A lost node's ssh may not know of the loss. Its agent ends without it.
                process.kill("was given back")
            else:
                process.end("the run ended", grace_s)
        if await self._have_ended(grace_s * (1 - _FOR_KILLS)):
            return ""
        late = [name for name, process in self._running.items() if process.is_elsewhere]
        self.kill()
        if not await self._have_ended(grace_s * _FOR_KILLS):
            return "; ".join(process.abandon() for process in list(self._running.values()))
        if not late:
            return ""
        return f"the agents at {', '.join(late)} did not end in time, and may still run"

    async def _have_ended(self, within_s: float) -> bool:
        self._all_ended.clear()
        return not self._running or await happens(self._all_ended, within_s)

    def _stop(self) -> None:
        """Start nothing any more."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        """Start what is due, in turns of the loop, and look again when more may be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_closing:
            return
        now = self._loop.time()
        if seating.due(self._seats.values(), self._wanted, now):
            self._timer = self._loop.call_later(0, self._start_next)
            return
        due = seating.next_due(self._seats.values(), self._wanted, now)
        if due is not None:
            self._timer = self._loop.call_at(due, self._plan)

    def _start_next(self) -> None:
        now = self._loop.time()
        for seat in seating.due(self._seats.values(), self._wanted, now)[:1]:
            self._start(seat, now)
        self._plan()

    def _start(self, seat: Seat, now: float) -> None:
        job = self.job_at(seat.name)
        try:
            invitation = self._host.invite(seat.kind, over_pipe=job.over_pipe)
        except EngineFailed as error:
            self.refuse(str(error))
            return
        self._seats[seat.name] = seating.taken(seat, invitation.ticket, now)
        try:
            self._running[seat.name] = AgentProcess(
                job,
                invitation.secret,
                partial(self._on_started, seat.name),
                partial(self._on_ended, seat.name),
            )
        except OSError as error:
            cause = f"{job.where}: `{job.shown}` cannot be run: {error}"
            self._on_ended(seat.name, cause, False)

    def _on_started(self, name: str, pipe: AgentPipe | None) -> None:
        seat = self._seats[name] = seating.working(self._seats[name])
        self._tell_what_is_missing()
        if pipe is not None:
            self._host.attach(seat.ticket, pipe)

    def _on_ended(self, name: str, cause: str, worked: bool) -> None:
        self._running.pop(name, None)
        seat = self._seats[name]
        self._seats[name] = seating.freed(
            seat, self._loop.time(), cause, worked=worked, rest_s=self.times.rest_s
        )
        self._host.gone(seat.ticket, cause)
        if not self._running:
            self._all_ended.set()
        if self._is_closing:
            return
        if seating.are_hopeless(list(self._seats.values()), self._wanted):
            causes = [seat.cause for seat in self._seats.values() if seat.cause]
            self.refuse(none_started(causes))
        else:
            self._tell_what_is_missing()
            self._plan()

    def _tell_what_is_missing(self) -> None:
        """Say once which seats are tried again and again."""
        found = seating.failing(self._seats.values(), self._wanted)
        text = "; ".join(seating.failing_text(seat) for seat in found)
        if text != self._waits:
            self._waits = text
            self._host.waits(text)
