"""A search space as plain data, which each library's adapter turns into its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One parameter: a float or an integer from `low` to `high`, both included, or a choice.

    `log`: drawn so that its logarithm is uniform. `where`: it exists only if the axis of this
    name, which comes before it, has one of the values that follow.
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    integer: bool = False
    choices: Sequence[Any] = ()
    where: tuple[Any, ...] | None = None

    def exists(self, config: Config) -> bool:
        return self.where is None or config.get(self.where[0]) in self.where[1:]

    def at(self, part: float) -> Any:
        """The value at `part`, from 0 up to 1, of the way from the first to the last."""
        if self.choices:
            return self.choices[min(len(self.choices) - 1, int(part * len(self.choices)))]
        low, high = (
            (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        )
        value = low + part * (high - low)
        value = min(self.high, max(self.low, math.exp(value) if self.log else value))
        return round(value) if self.integer else value

    def part_of(self, value: Any) -> float:
        """The position of a value, from 0 to 1: for numbers, the inverse of `at`."""
        if self.choices:
            return (list(self.choices).index(value) + 0.5) / len(self.choices)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))


Space = Sequence[Axis]


def draw(space: Space, random: Random) -> dict[str, Any]:
    """A configuration at random."""
    config: dict[str, Any] = {}
    for axis in space:
        part = random.random()  # drawn even if it does not exist, so that the others stay the same
        if axis.exists(config):
            config[axis.name] = axis.at(part)
    return config
