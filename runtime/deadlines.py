"""Waits for others on the loop, which begin again if this process was suspended meanwhile.

Also what else a clock decides: suspensions, and how often something may happen.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from holdfast.late import is_late

_LOOK_S = 1.0


async def first_of(ends: Collection[asyncio.Future[Any]], within_s: float) -> bool:
    """Wait until one of these is done. Returns False if none is within `within_s` seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + within_s
        await asyncio.wait(ends, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if any(end.done() for end in ends):
            return True
        if not is_late(due, loop.time()):
            return False


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Wait for the event. Returns False if it is not set within `within_s` seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + within_s
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await event.wait()
        if event.is_set() or not is_late(due, loop.time()):
            return event.is_set()


class Suspension:
    """The last time that this process was suspended for `least_s` seconds or longer.

    It goes by the time of day: a monotonic clock stands still while a machine sleeps.
    """

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._due = math.inf
        self.lasted_s, self.ended = 0.0, -math.inf  # seconds, and when by the loop's clock

    async def keep_looking(self) -> None:
        """Look until cancelled."""
        while True:
            self._due = time.time() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """Look now: what happened meanwhile may be handled before the next planned look."""
        late_s = time.time() - self._due
        if late_s >= self._least_s:
            self.lasted_s, self.ended = late_s, asyncio.get_running_loop().time()
            self._due = math.inf


class Rate:
    """Allows something `most` times within `within_s` seconds, for as long as it takes."""

    def __init__(self, most: int, within_s: float) -> None:
        self._most, self._within_s = most, within_s
        self._times: list[float] = []

    def allows(self, now: float) -> bool:
        """Whether it may happen now; then it counts."""
        self._times = [at for at in self._times if now - at < self._within_s]
        if len(self._times) >= self._most:
            return False
        self._times.append(now)
        return True
