"""How the best result of a run improved over time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

Points = list[tuple[float, float]]


@dataclass(slots=True)
class Course:
    """The incumbent is the report that looks best by its observed value.

    `points` has its true value: (seconds, value), from the first report on. So a run gets no
    credit for lucky noise, and can get worse if noise misled it.
    """

    points: Points = field(default_factory=list)
    _best_seen: float = float("inf")

    def saw(self, elapsed_s: float, seen: float, value: float) -> None:
        if seen < self._best_seen:
            self._best_seen = seen
            self.points.append((elapsed_s, value))


def value_at(points: Points, elapsed_s: float) -> float | None:
    """The incumbent's value at that time; None before the first report."""
    at = bisect_right(points, elapsed_s, key=lambda point: point[0])
    return points[at - 1][1] if at else None


def mean_between(points: Points, begin_s: float, end_s: float) -> float:
    """The incumbent's value, averaged over the time between; needs an earlier report."""
    first = value_at(points, begin_s)
    assert first is not None, f"nothing was reported in the first {begin_s} s"
    total, since, value = 0.0, begin_s, first
    for elapsed_s, next_value in points:
        if begin_s < elapsed_s < end_s:
            total += (elapsed_s - since) * value
            since, value = elapsed_s, next_value
    return (total + (end_s - since) * value) / (end_s - begin_s)
