"""The future events of a simulation, by time, then in the order in which they were added."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
# The clock of a simulation starts at this time: seconds since 1970, in September 2001.
BEGAN_AT = 1_000_000_000.0


class Agenda:
    """`elapsed_s` is the virtual clock: seconds since the simulation began."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.awaited = 0
        """The number of pending events that the run waits for."""
        self._entries: list[tuple[float, int, bool, Action, Any]] = []
        self._count = 0

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return BEGAN_AT + self.elapsed_s

    def after(self, seconds: float, action: Action, subject: Any, *, awaited: bool = True) -> None:
        """Call `action(subject)` after `seconds`.

        Events that recur by themselves, like the loss of nodes, are not `awaited`: a run that
        waits only for them would never end.
        """
        self._count += 1
        self.awaited += awaited
        entry = (self.elapsed_s + seconds, self._count, awaited, action, subject)
        heappush(self._entries, entry)

    def advance(self) -> None:
        """Perform the next event."""
        self.elapsed_s, _, awaited, action, subject = heappop(self._entries)
        self.awaited -= awaited
        action(subject)
