"""The time of day for a journal: seconds since 1970 that never decrease.

The system's clock may be set back by days, and user code that replaces it in this process (a test
that freezes time) may return anything. A record with a NaN time could never be read again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from holdfast.schema import LATEST_S

# Saved now, in case user code replaces `time.monotonic` later.
_monotonic = time.monotonic


def _elapsed() -> float:
    """Seconds since any fixed start, independent of the clock; on Linux they include sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else _monotonic()


class WallClock:
    """Follows the system's clock; if that goes back or returns nonsense, counts on from its last
    time."""

    def __init__(
        self,
        system_time: Callable[[], object] = lambda: time.time(),
        elapsed: Callable[[], float] = _elapsed,
    ) -> None:
        self._system_time = system_time
        self._elapsed = elapsed
        # One tuple, replaced as a whole, because several threads use it.
        self._last = (0.0, elapsed())

    def now(self) -> float:
        """Seconds since 1970, before the year 10000."""
        before, at = self._last
        elapsed, system_s = self._elapsed(), self._system_time()
        now = before + (elapsed - at)
        # The comparison is false for NaN.
        if isinstance(system_s, float | int) and before <= system_s <= LATEST_S:
            now = float(system_s)
        self._last = (now, elapsed)
        return now


wall_time = WallClock().now
