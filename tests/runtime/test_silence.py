"""When the other end of a connection is lost: the clock jumps."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime.connection import end_if_silent
from tests.rig.jumping_clock import JumpingClock
from tests.rig.jumping_clock import anyio_backend as anyio_backend
from tests.runtime.test_connection import Links
from tests.runtime.test_connection import links as links

pytestmark = pytest.mark.anyio

LEASE_S = 5.0


async def test_a_silent_end_is_lost_and_one_that_sends_is_not(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = links
    clock = JumpingClock(monkeypatch)
    watching = asyncio.ensure_future(end_if_silent(ours.link, LEASE_S, forgives=False))
    await clock.jump(0)
    for _ in range(8):
        await clock.jump(LEASE_S * 0.4)
        theirs.link.send(["beat"])
        await ours.message()
    assert not ours.closed.done()
    await clock.jump(LEASE_S)
    assert (await ours.reason()).startswith("not heard for 5 s")
    await watching


@pytest.mark.parametrize("forgives", [True, False])
async def test_a_late_controller_gives_an_agent_its_lease_again_but_once_and_an_agent_never_does(
    links: Links, monkeypatch: pytest.MonkeyPatch, forgives: bool
) -> None:
    """An agent's trials may run elsewhere by then."""
    ours, _ = links
    clock = JumpingClock(monkeypatch)
    watching = asyncio.ensure_future(end_if_silent(ours.link, LEASE_S, forgives=forgives))
    await clock.jump(0)
    await clock.jump(LEASE_S * 5)
    assert ours.closed.done() is not forgives
    await clock.jump(LEASE_S * 0.9)
    assert ours.closed.done() is not forgives
    await clock.jump(LEASE_S * 0.2)
    assert "not heard for" in await ours.reason()
    await watching


async def test_an_agent_whose_connection_is_cut_gives_up_before_the_controller_does(
    monkeypatch: pytest.MonkeyPatch, links: Links
) -> None:
    """Both hear each other for the last time; the controller's lease is longer by its margin."""
    agent, controller = links
    clock = JumpingClock(monkeypatch)
    watches = asyncio.gather(
        end_if_silent(agent.link, LEASE_S, forgives=False),
        end_if_silent(controller.link, LEASE_S + 1.0, forgives=True),
    )
    await clock.jump(0)
    await clock.jump(LEASE_S)
    assert (await agent.reason()).startswith("not heard")
    assert await controller.reason() == ""  # it has seen the agent's end
    await clock.jump(1.0)
    await watches
