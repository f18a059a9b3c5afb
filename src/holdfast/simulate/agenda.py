"""What will happen in a simulation, by time; what was put down first comes first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


class Agenda:
    """`elapsed_s` is the virtual clock: seconds since the simulation began."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.awaited = 0
        """How much is still to happen of what the run waits for."""
        self._entries: list[tuple[float, int, bool, Action, Any]] = []
        self._count = 0

    def after(self, seconds: float, action: Action, subject: Any, *, awaited: bool = True) -> None:
        """Call `action(subject)` so many seconds from now; not `awaited` is what goes on by
        itself, like the loss of nodes: a run that waits for nothing else waits for ever."""
        self._count += 1
        self.awaited += awaited
        entry = (self.elapsed_s + seconds, self._count, awaited, action, subject)
        heappush(self._entries, entry)

    def advance(self) -> None:
        """Let the next thing happen."""
        self.elapsed_s, _, awaited, action, subject = heappop(self._entries)
        self.awaited -= awaited
        action(subject)
