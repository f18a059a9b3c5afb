"""Several goals at once: who is beaten by nobody, and how to spread a choice among those."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

Point = Sequence[float]
"""What a trial was worth by each metric: more is better, whatever the mode."""


def dominates(one: Point, other: Point) -> bool:
    """Whether `one` is nowhere worse, and better somewhere."""
    return all(a >= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


class Fronts:
    """Points in fronts: the first are beaten by nobody, the next by those alone, and so on.

    Deb, Pratap, Agarwal, Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II"
    (2002), kept up to date as points come in (Li, Deb, Zhang, Kwong, "Efficient Nondomination
    Level Update Method for Steady-State Evolutionary Multiobjective Optimization", 2017).
    """

    def __init__(self) -> None:
        # By the number at which each point came in.
        self._points: list[Point] = []
        self._fronts: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: Point) -> int:
        """Returns the number of the point."""
        number = len(self._points)
        self._points.append(point)
        # Who is beaten by somebody in a front is beaten by somebody in each one before it.
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
        """Whether a point is one of the first `count`: front by front, the last one spread."""
        for front in self._fronts:
            if number in front:
                return len(front) <= count or number in self._spread(front, count)
            count -= len(front)
            if count <= 0:
                return False
        raise ValueError(f"there is no point {number}")

    def _is_beaten(self, point: Point, at: int) -> bool:
        return any(dominates(self._points[known], point) for known in self._fronts[at])

    def _join(self, at: int, several: list[int]) -> list[int]:
        """Returns those of the front that the new ones beat."""
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
    """The places of `count` points that cover them all well: an epsilon-net.

    It begins with the best by the first metric, and then takes again and again the point that is
    furthest from those taken, each metric measured in its range among the points. Among equals
    the one that stands first.

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
    """Each metric from 0 to 1. Those that are not finite are all equal: no front mixes them."""
    columns = list(zip(*points, strict=True))
    lows = [min(column) for column in columns]
    ranges = [(max(column) - low) or 1.0 for column, low in zip(columns, lows, strict=True)]
    if not all(math.isfinite(number) for number in (*lows, *ranges)):
        return [[0.0] * len(columns) for _ in points]
    return [
        [(value - low) / width for value, low, width in zip(point, lows, ranges, strict=True)]
        for point in points
    ]
