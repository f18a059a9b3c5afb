"""A Gaussian process over configs and time, and the config with the highest upper bound.

In plain Python: for at most a hundred points (0.3 s at 60), importing a library would take longer.

Parker-Holder, Nguyen, Roberts, "Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits" (2020); Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process
Bandit Optimization" (2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from holdfast.dataclass import dataclass
from holdfast.trial.domains import Random

Vector = Sequence[float]

# The length scales and forgetting rates to try: the kernel with the highest likelihood wins.
_LENGTHS = (0.1, 0.2, 0.4, 0.8)
_FORGETTING = (0.0, 0.01, 0.1)
_NOISE = 0.01
# The paper's exploration weight beta = _C1 + log(_C2 * n), at least _C1.
_C1, _C2 = 0.2, 0.4
_STARTS, _STEPS = 60, 60


class Measurement(NamedTuple):
    """A measured point: `time` in intervals, and `place` with coordinates from 0 to 1."""

    time: float
    place: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The covariance of two points: squared exponential in place, times (1 - forgetting) **
    (distance in time / 2)."""

    length: float
    forgetting: float

    def __call__(self, one: Measurement, other: Measurement) -> float:
        apart = math.dist(one.place, other.place) / self.length
        alike = math.exp(-0.5 * apart * apart)
        if self.forgetting:
            alike *= (1 - self.forgetting) ** (abs(one.time - other.time) / 2)
        return alike


class Process:
    """A Gaussian process conditioned on the standardized `values` at `points`."""

    def __init__(self, kernel: Kernel, points: Sequence[Measurement], values: Vector = ()) -> None:
        self._kernel = kernel
        self._points = points
        rows = [[kernel(a, b) for b in points[: i + 1]] for i, a in enumerate(points)]
        for i, row in enumerate(rows):
            row[i] += _NOISE
        self._root = cholesky(rows)
        self._whitened = forward(self._root, values) if values else []
        self._weights = backward(self._root, self._whitened)

    @property
    def likelihood(self) -> float:
        """The log likelihood of the values, up to a constant."""
        fit = -0.5 * math.fsum(map(mul, self._whitened, self._whitened))
        return fit - math.fsum(math.log(row[-1]) for row in self._root)

    def mean(self, point: Measurement) -> float:
        return math.fsum(map(mul, self._alike(point), self._weights))

    def deviation(self, point: Measurement) -> float:
        whitened = forward(self._root, self._alike(point))
        return math.sqrt(max(1e-12, 1.0 - math.fsum(map(mul, whitened, whitened))))

    def _alike(self, point: Measurement) -> list[float]:
        return [self._kernel(known, point) for known in self._points]


def likeliest(points: Sequence[Measurement], values: Vector) -> Kernel:
    """The kernel with the highest likelihood of the standardized values."""
    kernels = [Kernel(length=a, forgetting=b) for a in _LENGTHS for b in _FORGETTING]
    return max(kernels, key=lambda kernel: Process(kernel, points, values).likelihood)


def most_promising(
    points: Sequence[Measurement],
    values: Vector,
    running: Sequence[Measurement],
    *,
    now: float,
    context: Vector,
    size: int,
    chance: Random,
) -> tuple[float, ...]:
    """The point, of `size` coordinates from 0 to 1, with the highest upper confidence bound.

    The mean is fitted to `values` at `points`. The deviation counts the `running` points as
    measured, so that points chosen at the same time differ. The first coordinates of the place are
    the fixed `context`. Without values the point is uniform.
    """
    if not values:
        return tuple(chance.random() for _ in range(size))
    standard = standardized(values)
    kernel = likeliest(points, standard)
    known = Process(kernel, points, standard)
    busy = Process(kernel, [*points, *running])
    width = math.sqrt(_C1 + max(0.0, math.log(_C2 * len(points))))

    def bound(chosen: Vector) -> float:
        point = Measurement(now, (*context, *chosen))
        return known.mean(point) + width * busy.deviation(point)

    drawn = [tuple(chance.random() for _ in range(size)) for _ in range(_STARTS)]
    best = max(drawn, key=bound)
    highest = bound(best)
    for step in range(_STEPS):
        reach = 0.25 * 0.93**step
        near = tuple(min(1.0, max(0.0, x + reach * (2 * chance.random() - 1))) for x in best)
        if (found := bound(near)) > highest:
            best, highest = near, found
    return best


def standardized(values: Vector) -> list[float]:
    """The values with mean 0 and deviation 1; all 0 if they are equal."""
    # The squares of huge values, from trials that nearly diverged, would overflow.
    largest = max(map(abs, values)) or 1.0
    parts = [value / largest for value in values]
    mean = math.fsum(parts) / len(parts)
    spread = math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / len(parts))
    return [(part - mean) / spread if spread > 1e-12 * abs(mean) else 0.0 for part in parts]


def cholesky(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """The Cholesky factor of a positive definite matrix; `rows` is its lower half."""
    root: list[list[float]] = []
    for i, row in enumerate(rows):
        made: list[float] = []
        for j in range(i):
            made.append((row[j] - sum(map(mul, made, root[j]))) / root[j][j])
        made.append(math.sqrt(max(1e-12, row[i] - sum(map(mul, made, made)))))
        root.append(made)
    return root


def forward(root: Sequence[Sequence[float]], values: Vector) -> list[float]:
    """Solve root x = values for x."""
    found: list[float] = []
    for row, value in zip(root, values, strict=True):
        found.append((value - sum(map(mul, row, found))) / row[-1])
    return found


def backward(root: Sequence[Sequence[float]], values: Vector) -> list[float]:
    """Solve (root transposed) x = values for x."""
    left, found = list(values), [0.0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        found[i] = left[i] / root[i][i]
        row = root[i]
        for j in range(i):
            left[j] -= row[j] * found[i]
    return found
