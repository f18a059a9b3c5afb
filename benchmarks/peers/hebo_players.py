"""HEBO, through `suggest` and `observe`, one configuration at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from random import Random
from typing import Any

import numpy as np
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO

from benchmarks.peers.clock import CONTINUE, Player, Run
from benchmarks.peers.values import plain
from benchmarks.tasks.space import Axis
from benchmarks.tasks.task import Task


class HeboPlayer:
    """It knows no conditions: a parameter that does not exist is drawn and ignored. Nor does it
    know what runs meanwhile."""

    def __init__(self, task: Task, seed: int) -> None:
        np.random.seed(Random(seed).randrange(2**31))
        self._task = task
        self._hebo = HEBO(
            DesignSpace().parse([_parameter(axis) for axis in task.space]), scramble_seed=seed
        )
        self._asked: dict[int, Any] = {}

    def next(self) -> Run:
        asked = self._hebo.suggest(n_suggestions=1)
        number = len(self._asked)
        self._asked[number] = asked
        config = plain(asked.iloc[0].to_dict())
        for axis in self._task.space:
            if axis.integer:
                config[axis.name] = int(config[axis.name])
        return Run(number=number, config=config, state=self._task.begun)

    def report(self, run: Run, seen: float) -> str:
        return CONTINUE

    def ended(self, run: Run, seen: float) -> None:
        self._hebo.observe(self._asked[run.number], np.array([[seen]]))


def _parameter(axis: Axis) -> dict[str, Any]:
    if axis.choices:
        return {"name": axis.name, "type": "cat", "categories": list(axis.choices)}
    kind = {
        (False, False): "num", (False, True): "pow", (True, False): "int", (True, True): "pow_int",
    }[axis.integer, axis.log]  # fmt: skip
    return {"name": axis.name, "type": kind, "lb": axis.low, "ub": axis.high}


PLAYERS: Mapping[str, Callable[[Task, int], Player]] = {"HEBO": HeboPlayer}
VERSION = version("HEBO")
