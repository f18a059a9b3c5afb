"""Families of synthetic functions that mislead a model: noise, deception, pure categories.

Instance i of a family is always the same. A trial reports once, and its best value is known.

* `noisy`: a shifted and stretched bowl, valley or Ackley function of 3 to 6 numbers, observed with
  a noise of half the distance between a middling configuration and the best.
* `deceptive`: the slope leads into a wide basin, and the best lies in a narrow one far from it, as
  in Schwefel's function. 2 to 4 numbers.
* `categories`: Kauffman's NK landscape: 6 parameters of 5 categories without an order, where what
  each is worth depends on two others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise, product
from random import Random
from statistics import median

from benchmarks.tasks.space import Axis, Config, Space
from benchmarks.tasks.task import Task

_TYPICAL_OF = 1000
CATEGORIES = "abcde"
_PARAMETERS, _PARTNERS = 6, 2

Function = Callable[[Config], float]


def noisy(instance: int) -> Task:
    name = f"noisy/{instance}"
    random = Random(name)
    names = [f"x{at}" for at in range(3 + instance % 4)]
    centre = {name: random.uniform(0.15, 0.85) for name in names}
    scale = {name: 10 ** random.uniform(-0.7, 0.7) for name in names}
    shape = (_bowl, _valley, _ackley)[instance % 3]

    def function(config: Config) -> float:
        return shape([scale[name] * (config[name] - centre[name]) for name in names])

    space = [Axis(name=name) for name in names]
    middle = middle_of(name, space, function)
    return function_task(name, space, function, middle=middle, best=0.0, noise=middle / 2)


def _bowl(point: list[float]) -> float:
    return math.sqrt(sum(x * x for x in point))


def _valley(point: list[float]) -> float:
    bends = (2 * (b - 2 * a * a) ** 2 + a * a / 4 for a, b in pairwise(point))
    return math.sqrt(sum(bends))


def _ackley(point: list[float]) -> float:
    square = sum(x * x for x in point) / len(point)
    waves = sum(math.cos(4 * math.pi * x) for x in point) / len(point)
    return 4 * (1 - math.exp(-math.sqrt(square))) + 0.5 * (1 - waves)


def deceptive(instance: int) -> Task:
    name = f"deceptive/{instance}"
    random = Random(name)
    names = [f"x{at}" for at in range(2 + instance % 3)]
    # The best is near one corner, the wide basin near the opposite one.
    side = {name: random.random() < 0.5 for name in names}
    width = 0.08 + 0.04 * len(names)

    def function(config: Config) -> float:
        parts = [config[name] if side[name] else 1 - config[name] for name in names]
        narrow = _bowl([part - 0.2 for part in parts]) / width
        wide = _bowl([part - 0.8 for part in parts])
        return min(narrow**2, 0.4 + wide)

    space = [Axis(name=name) for name in names]
    middle = middle_of(name, space, function)
    return function_task(name, space, function, middle=middle, best=0.0)


def categories(instance: int) -> Task:
    random = Random(f"categories/{instance}")
    names = [f"c{at}" for at in range(_PARAMETERS)]
    partners = [random.sample([n for n in names if n != name], _PARTNERS) for name in names]
    tables = [
        {key: random.random() for key in product(CATEGORIES, repeat=1 + _PARTNERS)} for _ in names
    ]

    def function(config: Config) -> float:
        worths = (
            table[(config[name], *(config[other] for other in others))]
            for name, others, table in zip(names, partners, tables, strict=True)
        )
        return sum(worths) / _PARAMETERS

    space = [Axis(name=name, choices=tuple(CATEGORIES)) for name in names]
    everything = product(CATEGORIES, repeat=_PARAMETERS)
    values = [function(dict(zip(names, values, strict=True))) for values in everything]
    return function_task(
        f"categories/{instance}", space, function, middle=median(values), best=min(values)
    )


def middle_of(name: str, space: Space, function: Function) -> float:
    """The median of random configurations."""
    random = Random(f"{name}/typical")
    draws = [{axis.name: axis.at(random.random()) for axis in space} for _ in range(_TYPICAL_OF)]
    return median(function(config) for config in draws)


def function_task(
    name: str,
    space: Space,
    function: Function,
    *,
    middle: float,
    best: float,
    noise: float = 0.0,
) -> Task:
    """The task to minimize a function; a trial reports once."""
    return Task(
        name=name,
        about=f"{len(space)} parameters ({name.partition('/')[0]})",
        space=space,
        epochs=1,
        best=best,
        middle=middle,
        noise=noise,
        begun=0,
        step=partial(_step, function),
        # Uneven, so that workers do not end together.
        seconds=lambda config: 0.5 + Random(str(sorted(config.items()))).random(),
        mean_s=1.0,
    )


def _step(function: Function, epoch: int, config: Config) -> tuple[int, float]:
    return epoch + 1, function(config)


SYNTHETIC: Mapping[str, Callable[[int], Task]] = {
    "noisy": noisy,
    "deceptive": deceptive,
    "categories": categories,
}
