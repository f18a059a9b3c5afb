"""Several goals at once: which points no other dominates, and how to choose a spread of them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

Point = Sequence[float]
"""The value of a trial by each metric: more is better, whatever the mode."""


def dominates(one: Point, other: Point) -> bool:
    """True if `one` is at least as good by all metrics, and better by one."""
    return all(a >= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


class Fronts:
    """Points in fronts: nothing dominates the first front, only the first dominates the second,
    and so on.

    Deb, Pratap, Agarwal, Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II"
    (2002), updated point by point (Li, Deb, Zhang, Kwong, "Efficient Nondomination Level Update
    Method for Steady-State Evolutionary Multiobjective Optimization", 2017).
    """

    def __init__(self) -> None:
        # Each point has a number: how many were added before it.
        self._points: list[Point] = []
        self._fronts: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: Point) -> int:
        """Add a point and return its number."""
        number = len(self._points)
        self._points.append(point)
        # A point that a front dominates is dominated by each front before it: search by bisection.
        at = bisect_left(
            range(len(self._fronts)), True, key=lambda at: not self._is_beaten(point, at)
        )
        sinking = [number]
        while sinking:
            if at == len(self._fronts):
                self._fronts.append([])
            sinking = self._join(at, sinking)
            at += 1
        return number

    def is_among_first(self, number: int, count: int) -> bool:
        """Whether a point is one of the first `count`: front by front; of the last, a spread."""
        for front in self._fronts:
            if number in front:
                return len(front) <= count or number in self._spread(front, count)
            count -= len(front)
            if count <= 0:
                return False
        raise ValueError(f"no point has the number {number}")

    def _is_beaten(self, point: Point, at: int) -> bool:
        return any(dominates(self._points[known], point) for known in self._fronts[at])

    def _join(self, at: int, several: list[int]) -> list[int]:
        """Add points to a front; return the points of the front that they dominate."""
        beaten = [
            known
            for known in self._fronts[at]
            if any(dominates(self._points[new], self._points[known]) for new in several)
        ]
        stays = set(self._fronts[at]) - set(beaten)
        self._fronts[at] = sorted([*stays, *several])
        return beaten

    def _spread(self, front: Sequence[int], count: int) -> list[int]:
        chosen = spread([self._points[number] for number in front], count)
        return [front[place] for place in chosen]


def spread(points: Sequence[Point], count: int) -> list[int]:
    """The indices of `count` points that cover all of them well: an epsilon-net.

    It starts with the best by the first metric and then adds the point that is farthest from those
    chosen, with each metric scaled to its range among the points. Ties go to the first point.

    Salinas, Perrone, Cruchant, Archambeau, "A multi-objective perspective on jointly tuning
    hardware and hyperparameters" (2021).
    """
    scaled = _scaled(points)
    chosen: list[int] = []
    distances = [math.inf] * len(points)
    newest = max(range(len(points)), key=lambda place: points[place][0], default=0)
    for _ in range(min(count, len(points))):
        chosen.append(newest)
        for place, point in enumerate(scaled):
            distances[place] = min(distances[place], math.dist(point, scaled[newest]))
        for place in chosen:
            distances[place] = -1.0
        newest = max(range(len(points)), key=distances.__getitem__)
    return chosen


def _scaled(points: Sequence[Point]) -> list[list[float]]:
    """Scale each metric to 0..1. Points that are not finite are all equal: no front mixes them."""
    columns = list(zip(*points, strict=True))
    lows = [min(column) for column in columns]
    ranges = [(max(column) - low) or 1.0 for column, low in zip(columns, lows, strict=True)]
    if not all(math.isfinite(number) for number in (*lows, *ranges)):
        return [[0.0] * len(columns) for _ in points]
    return [
        [(value - low) / width for value, low, width in zip(point, lows, ranges, strict=True)]
        for point in points
    ]
