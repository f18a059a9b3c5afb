"""Deadlines that detect hanging workers: between a worker's reports, and of ranks that wait for
others.

If this process was suspended, the workers may have been, too, or have sent messages that are not
read yet: they get the whole time again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from holdfast.late import Timer, is_late


class HangTimer:
    """Detects that user code has run for too long without a report.

    A timer for each report would cost it 2 µs. This one continues to run, and checks at its end
    whether a report came.
    """

    def __init__(self, timeout_s: float | None, on_end: Callable[[], None]) -> None:
        """`on_end` is called after `timeout_s` seconds of silence; None for never."""
        self._timeout_s = timeout_s
        self._on_end = on_end
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to measure: user code runs from now on."""
        if self._timeout_s is None:
            return
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._timer is None:
            self._await(self._timeout_s, self._timeout_s)

    def end(self) -> None:
        """Stop measuring: user code waits for an answer."""
        self._since = None

    def _await(self, left_s: float, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + left_s
        self._timer = loop.call_at(due, self._look, due, timeout_s)

    def _look(self, due: float, timeout_s: float) -> None:
        self._timer = None
        if self._since is None:
            return  # the next `begin` starts it again
        now = asyncio.get_running_loop().time()
        if is_late(due, now):
            self._since = now
        left_s = self._since + timeout_s - now
        if left_s <= 0:
            self._since = None
            self._on_end()
        else:
            self._await(left_s, timeout_s)


class GroupTimer:
    """The one deadline that a group has at a time.

    `since` is when its ranks began to wait for others, None if they do not.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._timer: Timer | None = None

    @property
    def is_armed(self) -> bool:
        return self._timer is not None

    def arm(self, seconds: float, then: Callable[[], None], *, since: float | None = None) -> None:
        self.since = since
        self._timer = Timer(asyncio.get_running_loop(), seconds, partial(self._fire, then))

    def disarm(self) -> None:
        self.since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, then: Callable[[], None]) -> None:
        self._timer = None
        then()
