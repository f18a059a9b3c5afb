"""Two goals at once: the value of a run's front of losses and costs as one number."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from itertools import pairwise

from benchmarks.tasks.space import Config

Point = tuple[float, float]
"""A cost and a loss, both minimized."""


class Front:
    """The points that no other point beats in both goals."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points: list[Point] = []
        for point in points:
            self.add(point)

    def add(self, point: Point) -> None:
        at = bisect_left(self._points, point)
        if at and self._points[at - 1][1] <= point[1]:
            return
        insort(self._points, point)
        while len(self._points) > at + 1 and self._points[at + 1][1] >= point[1]:
            del self._points[at + 1]

    def volume(self, bound: Point) -> float:
        """The area (hypervolume) that it beats, up to `bound`, which is worse than all points that
        count."""
        inside = [(cost, loss) for cost, loss in self._points if cost < bound[0]]
        ends = [*inside, (bound[0], -math.inf)]
        return sum(
            (next_cost - cost) * max(0.0, bound[1] - loss)
            for (cost, loss), (next_cost, _) in pairwise(ends)
        )


def lacking(
    best: Iterable[Point], cost: Callable[[Config], float], bound: Point
) -> Callable[[], Callable[[float, Config], float]]:
    """For each run, a function of its reports, one after the other.

    It returns how much smaller the volume of the front so far is than that of the `best`.
    """
    whole = Front(best).volume(bound)

    def begun() -> Callable[[float, Config], float]:
        front = Front()

        def after(loss: float, config: Config) -> float:
            front.add((cost(config), loss))
            return whole - front.volume(bound)

        return after

    return begun
