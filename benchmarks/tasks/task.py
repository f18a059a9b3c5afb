"""A tuning problem: a training with a state, whose best value is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from benchmarks.tasks.space import Config, Space, draw

_TYPICAL_OF = 500
Worth = Callable[[float, Config], float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A problem to minimize: `epochs` steps of a training; only schedulers take fewer.

    `step(state, config)` returns the state after another epoch, and its value without noise;
    `begun` is the state before the first. `best` is the least value at any epoch. `noise` is the
    standard deviation of an observed value. `seconds(config)`: the time of an epoch. `about` says
    where it comes from.

    With `cost` there are two goals: a small value, and a small `cost(config)`. Then `worth()`
    returns, for each run, a function of value and config of each report in order: how far
    everything so far falls short. Without `cost` it is the value.
    """

    name: str
    about: str
    space: Space
    epochs: int
    best: float
    begun: Any
    step: Callable[[Any, Config], tuple[Any, float]]
    noise: float = 0.0
    seconds: Callable[[Config], float] = lambda config: 1.0
    evolves: bool = False
    """Whether a change in the middle of a training matters, as for PBT."""
    cost: Callable[[Config], float] | None = None
    worth: Callable[[], Worth] = lambda: lambda value, config: value
    middle: float | None = None
    """The median of random configurations that are trained to the end, where it is known."""
    mean_s: float | None = None
    """The mean time in seconds of training such a configuration; None if unknown."""

    @property
    def full_s(self) -> float:
        """Seconds of a whole training of an average configuration."""
        if self.mean_s is not None:
            return self.mean_s
        return self.epochs * self.seconds({axis.name: axis.at(0.5) for axis in self.space})

    def given(self, config: Config) -> Config:
        """The config without parameters that do not exist; values inside a category (see
        `domains.conditional`) are taken out of it."""
        flat = dict(config)
        for part in config.values():
            flat |= part if isinstance(part, Mapping) else {}
        return {axis.name: flat[axis.name] for axis in self.space if axis.exists(flat)}

    def seen(self, value: float, config: Config, epoch: int, seed: int) -> float:
        """The value with the noise of this configuration and epoch, always the same for a seed."""
        if not self.noise:
            return value
        text = json.dumps([self.name, seed, epoch, sorted(config.items())])
        return value + self.noise * Random(text).gauss(0.0, 1.0)

    def row(self, value: float, config: Config) -> dict[str, float]:
        """The reported metrics: `loss`, and `cost` if there is one."""
        return {"loss": value, **({"cost": self.cost(config)} if self.cost else {})}

    def value(self, config: Config, epoch: int) -> float:
        """The value without noise of a training with one configuration from the beginning."""
        state, value = self.step(self.begun, config)
        for _ in range(epoch - 1):
            state, value = self.step(state, config)
        return value

    def regret(self, value: float) -> float:
        """How far a value is above the best; 1 is the median of random configurations that are
        trained to the end."""
        return (value - self.best) / typical(self)


@cache
def typical(task: Task) -> float:
    """The median distance to the best of random configurations trained to the end."""
    if task.middle is not None:
        return task.middle - task.best
    random = Random(task.name)
    configs = [draw(task.space, random) for _ in range(_TYPICAL_OF)]
    ends = sorted(task.worth()(task.value(one, task.epochs), one) for one in configs)
    return ends[_TYPICAL_OF // 2] - task.best


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The resources of a run: `workers` at once, for this many whole trainings one after the
    other."""

    workers: int
    trainings: float

    def budget_s(self, task: Task) -> float:
        return self.trainings * task.full_s


def drawn(task: Task, seed: int, index: int) -> dict[str, Any]:
    """Configuration `index` of random search: the same in all contests."""
    return draw(task.space, Random(f"{task.name}/{seed}/{index}"))
