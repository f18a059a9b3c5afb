"""When the other end of a connection is lost: the clock jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.runtime.fleet.link import end_if_silent
from tests.rig.jumping_clock import JumpingClock
from tests.rig.jumping_clock import anyio_backend as anyio_backend
from tests.runtime.fleet.test_link import Ends, over_pipes, over_tls

pytestmark = pytest.mark.anyio

LEASE_S = 5.0


@pytest.mark.parametrize("make", [over_pipes, over_tls])
async def test_a_silent_end_is_lost_and_one_that_beats_is_not(
    make: Callable[[], Ends], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = JumpingClock(monkeypatch)
    ours, theirs = make()
    theirs.link.send(["hello"])
    await ours.message()
    watching = asyncio.ensure_future(end_if_silent(ours.link, LEASE_S, forgives=False))
    await clock.jump(0)
    for _ in range(8):
        await clock.jump(LEASE_S * 0.4)
        theirs.link.send(["beat"])
        await ours.message()
    assert not ours.closed.done()
    await clock.jump(LEASE_S)
    assert ours.closed.done()
    assert (await ours.reason()).startswith("not heard for 5 s")
    await watching
    theirs.link.close()
