"""The quantile of numbers that come one by one."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.policies.asha import RunningQuantile

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.just(-math.inf)


@given(st.lists(NUMBERS, max_size=40), st.floats(0, 1))
def test_it_is_that_of_a_sorted_list_after_each_number(numbers: list[float], share: float) -> None:
    quantile = RunningQuantile(share)
    assert quantile.value is None
    known: list[float] = []
    for number in numbers:
        quantile.add(number)
        known = sorted([*known, number])
        place = (len(known) - 1) * share
        part = place - math.floor(place)
        low, high = known[math.floor(place)], known[math.ceil(place)]
        between = (1 - part) * low + part * high if part and low != high else low
        assert quantile.value == between
