"""Deadlines for others, of a process that was suspended meanwhile: the clock jumps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from holdfast.late import LATE_S, Timer
from holdfast.runtime.tasks import Rate, Suspension, first_of, happens
from tests.rig.jumping_clock import JumpingClock
from tests.rig.jumping_clock import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

WITHIN_S = 5.0


async def timer(_: asyncio.Future[None]) -> bool:
    over = asyncio.Event()
    Timer(asyncio.get_running_loop(), WITHIN_S, over.set)
    await over.wait()
    return False


async def event(answer: asyncio.Future[None]) -> bool:
    happened = asyncio.Event()
    answer.add_done_callback(lambda _: happened.set())
    return await happens(happened, WITHIN_S)


async def future(answer: asyncio.Future[None]) -> bool:
    other = asyncio.get_running_loop().create_future()
    return await first_of([other, answer], WITHIN_S)


Wait = Callable[[asyncio.Future[None]], Awaitable[bool]]


async def begun(
    wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> tuple[JumpingClock, asyncio.Future[None], asyncio.Future[bool]]:
    """The clock, the answer, and the wait for it, which has begun."""
    clock = JumpingClock(monkeypatch)
    answer = asyncio.get_running_loop().create_future()
    waits = asyncio.ensure_future(wait(answer))
    await clock.jump(0)
    return clock, answer, waits


@pytest.mark.parametrize("wait", [timer, event, future])
async def test_the_whole_time_begins_again_after_a_suspension(
    wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, _, waits = await begun(wait, monkeypatch)
    for late_s in (2 * LATE_S, 3600.0):
        await clock.jump(WITHIN_S + late_s)
        assert not waits.done()
    await clock.jump(WITHIN_S - 0.1)
    assert not waits.done()
    await clock.jump(0.2)
    assert waits.done()
    assert await waits is False


@pytest.mark.parametrize("wait", [event, future])
async def test_an_answer_that_arrived_during_the_suspension_is_in_time(
    wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answer, waits = await begun(wait, monkeypatch)
    await clock.jump(WITHIN_S + 2 * LATE_S)
    answer.set_result(None)
    await clock.jump(0)
    assert await waits is True


async def test_an_answer_in_the_turn_of_the_deadline_is_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, happened = JumpingClock(monkeypatch), asyncio.Event()
    waits = asyncio.ensure_future(happens(happened, WITHIN_S))
    await clock.jump(0)
    asyncio.get_running_loop().call_soon(happened.set)
    await clock.jump(WITHIN_S)
    assert await waits is True


async def test_a_timer_that_is_cancelled_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, fired = JumpingClock(monkeypatch), asyncio.Event()
    cancelled = Timer(asyncio.get_running_loop(), WITHIN_S, fired.set)
    await clock.jump(WITHIN_S + 2 * LATE_S)
    cancelled.cancel()
    await clock.jump(2 * WITHIN_S)
    assert not fired.is_set()


async def test_a_suspension_is_noticed_by_the_time_of_day_also_before_the_next_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, day_s = JumpingClock(monkeypatch), [1000.0]
    monkeypatch.setattr(time, "time", lambda: day_s[0])
    suspension = Suspension(4.0)
    looking = asyncio.ensure_future(suspension.watch())
    await clock.jump(0)
    for seconds, lasted_s in ((1.0, 0.0), (4.9, 0.0), (6.0, 5.0)):
        day_s[0] += seconds  # its machine slept: the clock of the loop stood still
        suspension.check()
        assert suspension.lasted_s == lasted_s
        await clock.jump(1.0)
    day_s[0] -= 3600.0  # set back
    await clock.jump(1.0)
    assert suspension.lasted_s == 5.0
    looking.cancel()


def test_a_rate_has_no_end_and_counts_only_what_has_just_been() -> None:
    rate = Rate(2, within_s=10.0)
    often = [rate.allows(now) for now in (0.0, 1.0, 9.0)]
    assert often == [True, True, False]
    assert all(rate.allows(20.0 + 6.0 * day) for day in range(100))
    assert not Rate(0, within_s=10.0).allows(0.0)
