"""A clock that jumps, as after a suspension."""

from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """A loop whose timers look at its clock; those of uvloop do not."""
    return "asyncio"


class JumpingClock:
    """The clock of the running loop, which only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self.now)

    async def jump(self, seconds: float) -> None:
        """Let this time pass, and the loop do what is due then."""
        self.now += seconds
        for _ in range(5):
            await asyncio.sleep(0)
