"""SMAC3's facade for hyperparameter optimization, through its own ask and tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import ConfigSpace
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialValue

from benchmarks.peers.clock import CONTINUE, Player, Run
from benchmarks.peers.values import plain
from benchmarks.tasks.space import Axis
from benchmarks.tasks.task import Task

logging.disable(logging.WARNING)
_TRIALS = 120  # a quarter of them may be its initial design


class SmacPlayer:
    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        scenario = Scenario(
            space_of(task), deterministic=True, n_trials=_TRIALS, seed=seed,
            output_directory=Path(mkdtemp(prefix="smac-")),
        )  # fmt: skip
        self._smac = HyperparameterOptimizationFacade(
            scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False
        )
        self._asked: dict[int, Any] = {}

    def next(self) -> Run:
        asked = self._smac.ask()
        number = len(self._asked)
        self._asked[number] = asked
        return Run(number=number, config=plain(asked.config), state=self._task.begun)

    def report(self, run: Run, seen: float) -> str:
        return CONTINUE

    def ended(self, run: Run, seen: float) -> None:
        self._smac.tell(self._asked[run.number], TrialValue(cost=seen))


def space_of(task: Task) -> Any:
    """The space with its conditions."""
    space = ConfigSpace.ConfigurationSpace()
    for axis in task.space:
        space.add(_parameter(axis))
    for axis in task.space:
        if axis.where is not None:
            above, *values = axis.where
            condition = ConfigSpace.InCondition(space[axis.name], space[above], values)
            space.add(condition)
    return space


def _parameter(axis: Axis) -> Any:
    if axis.choices:
        return ConfigSpace.CategoricalHyperparameter(axis.name, list(axis.choices))
    if axis.integer:
        return ConfigSpace.UniformIntegerHyperparameter(
            axis.name, int(axis.low), int(axis.high), log=axis.log
        )
    return ConfigSpace.UniformFloatHyperparameter(axis.name, axis.low, axis.high, log=axis.log)


PLAYERS: Mapping[str, Callable[[Task, int], Player]] = {"SMAC": SmacPlayer}
VERSION = version("smac")
