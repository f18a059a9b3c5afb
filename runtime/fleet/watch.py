"""Ends a connection whose other end is silent."""

from __future__ import annotations

import asyncio

from holdfast.runtime.fleet.link import Link
from holdfast.runtime.fleet.liveness import Liveness


async def end_if_silent(link: Link, lease_s: float, *, forgives: bool) -> None:
    """Return when the connection has ended, at the latest when the other end is lost."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    liveness = Liveness(lease_s, now=began, forgives=forgives)
    while link.is_open:
        due = liveness.due
        await asyncio.sleep(due - loop.time())
        link.drain()
        heard, now = link.heard_s, loop.time()
        if link.is_open and liveness.is_lost(due=due, now=now, heard=heard):
            link.fail(f"not heard for {now - max(began, heard):.3g} s")
