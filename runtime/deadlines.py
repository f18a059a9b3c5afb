"""Waits for others on the loop, and begins again if this process was suspended meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from holdfast.late import is_late


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
