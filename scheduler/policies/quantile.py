"""The running quantile of a stream of numbers."""

from __future__ import annotations

import math
from heapq import heappop, heappush


class RunningQuantile:
    """Divides the numbers so far: `share` of them, from 0 to 1, are below its `value`.

    The lower numbers are in one heap and the others in a second one, so that adding a number takes
    logarithmic time. In a sorted list, adding moves half of the numbers: 30 µs at 100,000.
    """

    __slots__ = ("_above", "_below", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._below: list[float] = []  # negated, so that the largest comes first
        self._above: list[float] = []

    @property
    def value(self) -> float | None:
        """The quantile, interpolated; None if there are no numbers."""
        if not self._below:
            return None
        place = self._place
        part = place - math.floor(place)
        low = -self._below[0]
        # Between equal numbers, rounding could exceed them.
        if not part or self._above[0] == low:
            return low
        return (1 - part) * low + part * self._above[0]

    def add(self, number: float) -> None:
        if self._below and number < -self._below[0]:
            heappush(self._below, -number)
        else:
            heappush(self._above, number)
        count = math.floor(self._place) + 1
        while len(self._below) < count:
            heappush(self._below, -heappop(self._above))
        while len(self._below) > count:
            heappush(self._above, -heappop(self._below))

    @property
    def _place(self) -> float:
        """The index of the quantile in a sorted list, counted from 0; may be fractional."""
        return (len(self._below) + len(self._above) - 1) * self._share
