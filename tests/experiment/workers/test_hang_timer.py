"""Deadlines of workers, in a controller that was held up itself: the clock jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.experiment.workers.actor import GroupTimer, HangTimer
from holdfast.late import LATE_S
from tests.rig.jumping_clock import JumpingClock

pytestmark = pytest.mark.anyio

TIMEOUT_S = 5.0


def hang_timer(on_end: Callable[[], None]) -> None:
    HangTimer(TIMEOUT_S, on_end).begin()


def group_timer(on_end: Callable[[], None]) -> None:
    GroupTimer().arm(TIMEOUT_S, on_end)


@pytest.mark.parametrize("begin", [hang_timer, group_timer])
async def test_the_time_in_which_the_controller_was_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[Callable[[], None]], None]
) -> None:
    clock, ended = JumpingClock(monkeypatch), asyncio.Event()
    begin(ended.set)
    await clock.jump(TIMEOUT_S + 2 * LATE_S)
    assert not ended.is_set()
    await clock.jump(TIMEOUT_S / 2)
    assert not ended.is_set()
    await clock.jump(TIMEOUT_S / 2)
    assert ended.is_set()


async def test_a_report_that_was_not_read_while_the_controller_was_suspended_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, ended = JumpingClock(monkeypatch), asyncio.Event()
    timer = HangTimer(TIMEOUT_S, ended.set)
    timer.begin()
    await clock.jump(TIMEOUT_S + 2 * LATE_S)
    timer.end()
    await clock.jump(TIMEOUT_S)
    assert not ended.is_set()
