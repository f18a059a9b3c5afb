"""The time of day in the journal."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from holdfast.experiment.records.journal import WallClock, wall_time


def clock(told: Iterator[object]) -> WallClock:
    """Each call happens ten seconds after the one before."""
    elapsed = iter(range(0, 1000, 10))
    return WallClock(lambda: next(told), lambda: float(next(elapsed)))


def times(*told: object) -> list[float]:
    made = clock(iter(told))
    return [made.now() for _ in told]


def test_it_is_the_systems_time() -> None:
    assert times(1e9, 1e9 + 5, 2e9) == [1e9, 1e9 + 5, 2e9]
    assert 1.7e9 < wall_time() <= wall_time()


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf, -1.0, 1e300, "now", None])
def test_nonsense_is_skipped_and_the_time_continues(nonsense: object) -> None:
    assert times(1e9, nonsense, nonsense, 1e9 + 31) == [1e9, 1e9 + 10, 1e9 + 20, 1e9 + 31]
    assert times(nonsense, nonsense) == [10.0, 20.0]


def test_a_clock_that_is_set_back_by_days_does_not_take_the_time_back() -> None:
    assert times(1e9, 1e9 - 86_400, 1e9 - 86_390) == [1e9, 1e9 + 10, 1e9 + 20]
