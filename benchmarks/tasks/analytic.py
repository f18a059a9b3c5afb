"""Learning curves made of test functions: each ends at its function's value, some slowly.

A configuration x of a function F has the final value g(x) = log(1 + F(x)/c) (F is 0 at its
minimum), starts at 1.5 and falls exponentially, in a time that depends on x by a wave: the slowest
take twelve times as long as the fastest, so that curves cross and a good configuration can look
poor at first. After the last epoch the value is g(x) exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.tasks.functions import MINIMA, Point
from benchmarks.tasks.space import Axis, Config
from benchmarks.tasks.task import Task

START = 1.5
FASTEST, SLOWEST = 0.06, 0.7
EPOCHS = 27
NOISE = 0.01


def falling(final: float, slowness: float, epoch: int, epochs: int) -> float:
    """A curve from START, before the first epoch, to `final`, at the last.

    `slowness` from 0 to 1.
    """
    part = FASTEST * (SLOWEST / FASTEST) ** slowness
    left, least = math.exp(-epoch / epochs / part), math.exp(-1 / part)
    return final + (START - final) * (left - least) / (1 - least)


def wave(point: Point) -> float:
    """How slowly a configuration learns: from 0 to 1, with both ends about as frequent."""
    phase = sum((2 + index) * part for index, part in enumerate(point))
    return 0.5 + 0.5 * math.sin(math.pi * phase)


def on_the_cube(
    name: str, scale: float, *, about: str, seconds: Callable[[Config], float] = lambda config: 1.0
) -> Task:
    """The task of one of `functions.MINIMA`, with parameters x0, x1, ... from 0 to 1."""
    function, minimiser = MINIMA[name]
    names = [f"x{index}" for index in range(len(minimiser))]
    return Task(
        name=name,
        about=about,
        space=[Axis(name=axis) for axis in names],
        epochs=EPOCHS,
        best=0.0,
        begun=0,
        step=partial(_step, function, scale, names),
        noise=NOISE,
        seconds=seconds,
    )


def _step(
    function: Callable[[Point], float],
    scale: float,
    names: Sequence[str],
    epoch: int,
    config: Config,
) -> tuple[int, float]:
    point = [config[name] for name in names]
    final = math.log1p(max(0.0, function(point)) / scale)
    return epoch + 1, falling(final, wave(point), epoch + 1, EPOCHS)


# `scale` is such that the median of random configurations is about 1.
BRANIN = on_the_cube("branin", 20.0, about="2 parameters, three minima of one height")
HARTMANN3 = on_the_cube("hartmann3", 2.0, about="3 parameters, four basins")
HARTMANN6 = on_the_cube("hartmann6", 2.0, about="6 parameters, four basins, mostly flat")
ROSENBROCK = on_the_cube("rosenbrock", 600.0, about="4 parameters, a bent valley")
ACKLEY = on_the_cube(
    "ackley", 5.0, about="5 parameters, many basins; an epoch takes 0.5 to 2 s, by x0",
    seconds=lambda config: 2.0 ** (2 * config["x0"] - 1),
)  # fmt: skip
LEVY = on_the_cube("levy", 20.0, about="4 parameters, many basins")
# Hardly any two reports come at the same time, so all schedulers see them in one order.
UNEVEN = replace(
    HARTMANN3,
    name="uneven",
    about="hartmann3, whose epochs take 1 to 1.5 s, by x0",
    seconds=lambda config: 1.0 + 0.5 * config["x0"],
)
