"""The time of day, as a journal can keep it: a number of seconds since 1970 that never goes back.

The system's clock may be set back by days, and what user code puts in its place in this process (a
test that freezes the time) may say anything. A record whose time is NaN could never be read again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from holdfast.trial.bounds import LATEST_S

# Taken now: whoever replaces `time.monotonic` later does not mean us.
_monotonic = time.monotonic


def _elapsed() -> float:
    """Seconds that nobody can set; on Linux also those in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else _monotonic()


class WallClock:
    """Follows the system's clock; where that goes back or says nonsense, counts on by itself."""

    def __init__(
        self,
        told: Callable[[], object] = lambda: time.time(),
        elapsed: Callable[[], float] = _elapsed,
    ) -> None:
        self._told = told
        self._elapsed = elapsed
        # One tuple, replaced whole: several threads ask.
        self._last = (0.0, elapsed())

    def now(self) -> float:
        """Seconds since 1970, before the year 10000."""
        before, at = self._last
        elapsed, told = self._elapsed(), self._told()
        now = before + (elapsed - at)
        # NaN is in no range.
        if isinstance(told, float | int) and before <= told <= LATEST_S:
            now = float(told)
        self._last = (now, elapsed)
        return now


wall_time = WallClock().now
