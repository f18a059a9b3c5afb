"""Tells deadlines that have passed from those that passed while this process was suspended.

Ctrl-Z, a batch system or a closed laptop suspend a process, often together with those that it
waits for. When it continues, a deadline has passed, and what answers it may have arrived unread.
So a deadline that comes late begins again. An overloaded machine looks the same, and is treated
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # workers import this, and do without it
    import asyncio

LATE_S = 1.0


def is_late(due: float, now: float) -> bool:
    """True if what was planned for `due` happens so late that this process was suspended."""
    return now - due > LATE_S


class Timer:
    """Calls `then` on the loop at the time `due`, unless it is cancelled before."""

    __slots__ = ("_handle", "_loop", "_seconds", "_then", "due")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, then: Callable[[], object]
    ) -> None:
        self._loop, self._seconds, self._then = loop, seconds, then
        self._begin()

    def cancel(self) -> None:
        self._handle.cancel()

    def _begin(self) -> None:
        self.due = self._loop.time() + self._seconds
        self._handle = self._loop.call_at(self.due, self._fire)

    def _fire(self) -> None:
        if is_late(self.due, self._loop.time()):
            self._begin()
        else:
            self._then()
