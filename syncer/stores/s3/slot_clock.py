"""The deadline of a download whose requests share slots with those of other downloads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.dataclass import dataclass


@dataclass(slots=True, kw_only=True)
class SlotClock:
    """Stops `limit` while all requests of the download wait for slots: that time is others'.

    `left_s` is the rest of the time while it is stopped; None while it runs.
    """

    limit: asyncio.Timeout
    waiting: int = 0
    asking: int = 0
    left_s: float | None = None

    def allow(self, seconds: float) -> None:
        """Restart it, with so much time."""
        if self.left_s is not None:
            self.left_s = seconds
        elif not self.limit.expired():  # after a suspension, that has come with the answer
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)

    @asynccontextmanager
    async def slot(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """A slot for a request, for the duration of the block."""
        self._count(waiting=1)
        try:
            await slots.acquire()
        finally:
            self._count(waiting=-1)
        self._count(asking=1)
        try:
            yield
        finally:
            slots.release()
            self._count(asking=-1)

    def _count(self, *, waiting: int = 0, asking: int = 0) -> None:
        self.waiting += waiting
        self.asking += asking
        now = asyncio.get_running_loop().time()
        is_stopped = self.waiting > 0 and self.asking == 0
        if self.limit.expired() or is_stopped == (self.left_s is not None):
            return
        if self.left_s is None:
            self.left_s = (self.limit.when() or now) - now
            self.limit.reschedule(None)
        else:
            self.limit.reschedule(now + self.left_s)
            self.left_s = None
