"""Ax's client, through `get_next_trials` and `complete_trial`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from benchmarks.peers.clock import CONTINUE, Player, Run
from benchmarks.peers.values import plain
from benchmarks.tasks.space import Axis
from benchmarks.tasks.task import Task

logging.disable(logging.WARNING)


class AxPlayer:
    """The space without conditions: a parameter that does not exist is drawn and ignored."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._client = Client(random_seed=seed)
        self._client.configure_experiment(
            name=task.name, parameters=[_parameter(axis) for axis in task.space]
        )
        self._client.configure_optimization(objective="-loss")
        # Its first 5 trials would else have to end before the workers 6 to 8 get one.
        self._client.configure_generation_strategy(allow_exceeding_initialization_budget=True)

    def next(self) -> Run:
        ((number, config),) = self._client.get_next_trials(max_trials=1).items()
        return Run(number=number, config=plain(config), state=self._task.begun)

    def report(self, run: Run, seen: float) -> str:
        return CONTINUE

    def ended(self, run: Run, seen: float) -> None:
        self._client.complete_trial(trial_index=run.number, raw_data={"loss": seen})


def _parameter(axis: Axis) -> Any:
    if axis.choices:
        return ChoiceParameterConfig(
            name=axis.name, values=list(axis.choices), parameter_type="str", is_ordered=False
        )
    return RangeParameterConfig(
        name=axis.name,
        bounds=(axis.low, axis.high),
        parameter_type="int" if axis.integer else "float",
        scaling="log" if axis.log else None,
    )


PLAYERS: Mapping[str, Callable[[Task, int], Player]] = {"Ax": AxPlayer}
VERSION = version("ax-platform")
