"""Test functions of global optimisation over the unit cube, minus their least value.

Each takes coordinates from 0 to 1 and is 0 at `MINIMA`. Definitions and minimisers are those
generally used (Dixon and Szegö, "Towards Global Optimisation 2", 1978, for Branin and Hartmann;
Rosenbrock, 1960; Ackley, 1987; Levy and Montalvo, 1985).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

Point = Sequence[float]

_HARTMANN_WEIGHTS = (1.0, 1.2, 3.0, 3.2)
_HARTMANN_3 = (
    ((3.0, 10.0, 30.0), (0.1, 10.0, 35.0), (3.0, 10.0, 30.0), (0.1, 10.0, 35.0)),
    (
        (0.3689, 0.1170, 0.2673), (0.4699, 0.4387, 0.7470),
        (0.1091, 0.8732, 0.5547), (0.03815, 0.5743, 0.8828),
    ),
)  # fmt: skip
_HARTMANN_6 = (
    (
        (10.0, 3.0, 17.0, 3.5, 1.7, 8.0), (0.05, 10.0, 17.0, 0.1, 8.0, 14.0),
        (3.0, 3.5, 1.7, 10.0, 17.0, 8.0), (17.0, 8.0, 0.05, 10.0, 0.1, 14.0),
    ),
    (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
        (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
        (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    ),
)  # fmt: skip


def branin(point: Point) -> float:
    x, y = -5 + 15 * point[0], 15 * point[1]
    bowl = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816


def hartmann3(point: Point) -> float:
    return _hartmann(point, *_HARTMANN_3) + 3.8627821478207554


def hartmann6(point: Point) -> float:
    return _hartmann(point, *_HARTMANN_6) + 3.322368011415512


def rosenbrock(point: Point) -> float:
    x = [-2.0 + 4.0 * part for part in point]
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))


def ackley(point: Point) -> float:
    x = [-5.0 + 10.0 * _moved(part) for part in point]
    mean_square = sum(value * value for value in x) / len(x)
    mean_wave = sum(math.cos(2 * math.pi * value) for value in x) / len(x)
    return max(
        0.0, 20 - 20 * math.exp(-0.2 * math.sqrt(mean_square)) + math.e - math.exp(mean_wave)
    )


def levy(point: Point) -> float:
    w = [1 + (-10 + 20 * part - 1) / 4 for part in point]
    first = math.sin(math.pi * w[0]) ** 2
    middle = sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
    return first + middle + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)


MINIMA: Mapping[str, tuple[Callable[[Point], float], Point]] = {
    "branin": (branin, ((math.pi + 5) / 15, 2.275 / 15)),
    "hartmann3": (hartmann3, (0.11461434, 0.55564885, 0.85254695)),
    "hartmann6": (
        hartmann6, (0.20168951, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730053)
    ),
    "rosenbrock": (rosenbrock, (0.75, 0.75, 0.75, 0.75)),
    "ackley": (ackley, (0.37, 0.37, 0.37, 0.37, 0.37)),
    "levy": (levy, (0.55, 0.55, 0.55, 0.55)),
}  # fmt: skip
"""Each function, and the point at which it is 0 (to 1e-6: for some, only that many digits are
known)."""


def _hartmann(point: Point, widths: Sequence[Point], centres: Sequence[Point]) -> float:
    return -sum(
        weight * math.exp(-_distance(point, row, centre))
        for weight, row, centre in zip(_HARTMANN_WEIGHTS, widths, centres, strict=True)
    )


def _distance(point: Point, widths: Point, centre: Point) -> float:
    return sum(a * (x - p) ** 2 for a, x, p in zip(widths, point, centre, strict=True))


def _moved(part: float) -> float:
    """Move the minimum away from the middle of the cube, which some algorithms try first."""
    return 0.5 * part / 0.37 if part <= 0.37 else 0.5 + 0.5 * (part - 0.37) / 0.63
