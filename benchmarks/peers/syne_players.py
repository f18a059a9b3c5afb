"""Syne Tune's schedulers, called as its Tuner calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import version
from random import Random
from typing import Any

import numpy as np
from syne_tune import config_space
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer import baselines
from syne_tune.optimizer.schedulers.asha import AsynchronousSuccessiveHalving
from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA
from syne_tune.optimizer.schedulers.pbt import PopulationBasedTraining

from benchmarks.peers.clock import CONTINUE, PAUSE, STOP, Player, Run
from benchmarks.peers.values import plain
from benchmarks.tasks.space import Axis
from benchmarks.tasks.task import Task, drawn

LOSS, EPOCH = "loss", "epoch"
_ANSWERS = {"CONTINUE": CONTINUE, "STOP": STOP, "PAUSE": PAUSE}
# More than a run of any benchmarked field asks for.
_MOST_CONFIGS = 2500
_POPULATION = 16


class SynePlayer:
    """One of its schedulers."""

    def __init__(self, task: Task, scheduler: Any) -> None:
        self._task = task
        self._scheduler = scheduler
        self._trials: list[Any] = []
        self._runs: list[Run] = []

    def next(self) -> Run | None:
        suggested = self._scheduler.suggest()
        if suggested is None:
            return None
        if not suggested.spawn_new_trial_id:
            return self._runs[int(suggested.checkpoint_trial_id)]
        number, config = len(self._trials), dict(suggested.config)
        trial = Trial(trial_id=number, config=config, creation_time=datetime(2026, 1, 1))  # noqa: DTZ001
        run = Run(number=number, config=plain(config), state=self._task.begun)
        if suggested.checkpoint_trial_id is not None:
            source = self._runs[suggested.checkpoint_trial_id]
            run.state, run.epoch = source.state, source.epoch
        self._trials.append(trial)
        self._runs.append(run)
        self._scheduler.on_trial_add(trial)
        return run

    def report(self, run: Run, seen: float) -> str:
        result = self._result(run, seen)
        return _ANSWERS[self._scheduler.on_trial_result(self._trials[run.number], result)]

    def ended(self, run: Run, seen: float) -> None:
        if run.epoch >= self._task.epochs:
            result = self._result(run, seen)
            self._scheduler.on_trial_complete(self._trials[run.number], result)

    def _result(self, run: Run, seen: float) -> dict[str, float]:
        return {**self._task.row(seen, self._task.given(run.config)), EPOCH: run.epoch}


def _space(task: Task) -> dict[str, Any]:
    """The space without conditions, which Syne Tune lacks: a parameter that does not exist is
    drawn and ignored."""
    return {axis.name: _domain(axis) for axis in task.space}


def _domain(axis: Axis) -> Any:
    if axis.choices:
        return config_space.choice(list(axis.choices))
    if axis.integer:
        draws = config_space.lograndint if axis.log else config_space.randint
        return draws(int(axis.low), int(axis.high))
    return (config_space.loguniform if axis.log else config_space.uniform)(axis.low, axis.high)


def _points(task: Task, seed: int, count: int = _MOST_CONFIGS) -> list[dict[str, Any]]:
    """The configs of random search; a parameter that does not exist has its lowest value."""
    lowest = {axis.name: axis.at(0.0) for axis in task.space}
    return [{**lowest, **drawn(task, seed, index)} for index in range(count)]


def _asha(task: Task, seed: int) -> Player:
    _seed(seed)
    scheduler = AsynchronousSuccessiveHalving(
        _space(task), metric=LOSS, time_attr=EPOCH, max_t=task.epochs, grace_period=1,
        reduction_factor=3, random_seed=seed,
        searcher_kwargs={"points_to_evaluate": _points(task, seed)},
    )  # fmt: skip
    return SynePlayer(task, scheduler)


def _tpe(task: Task, seed: int) -> Player:
    _seed(seed)
    return SynePlayer(task, baselines.TPE(_space(task), metric=LOSS, random_seed=seed))


def _random(task: Task, seed: int) -> Player:
    _seed(seed)
    scheduler = baselines.RandomSearch(_space(task), metrics=[LOSS], random_seed=seed)
    return SynePlayer(task, scheduler)


def _bohb(task: Task, seed: int) -> Player:
    _seed(seed)
    scheduler = baselines.BOHB(
        _space(task), metric=LOSS, time_attr=EPOCH, max_t=task.epochs, grace_period=1,
        reduction_factor=3, random_seed=seed,
    )  # fmt: skip
    return SynePlayer(task, scheduler)


def _moasha(task: Task, seed: int) -> Player:
    """MO-ASHA draws configs itself, from NumPy's global generator."""
    _seed(seed)
    scheduler = MOASHA(
        _space(task), metrics=[LOSS, "cost"], time_attr=EPOCH, max_t=task.epochs, grace_period=1,
        reduction_factor=3, random_seed=seed,
    )  # fmt: skip
    return SynePlayer(task, scheduler)


def _pbt(task: Task, seed: int) -> Player:
    _seed(seed)
    scheduler = PopulationBasedTraining(
        _space(task), metric=LOSS, time_attr=EPOCH, max_t=task.epochs, do_minimize=True,
        random_seed=seed, population_size=_POPULATION, perturbation_interval=4,
        searcher_kwargs={"points_to_evaluate": _points(task, seed, _POPULATION)},
    )  # fmt: skip
    return SynePlayer(task, scheduler)


def _cqr(task: Task, seed: int) -> Player:
    _seed(seed)
    return SynePlayer(task, baselines.CQR(_space(task), metric=LOSS, random_seed=seed))


def _asha_cqr(task: Task, seed: int) -> Player:
    _seed(seed)
    scheduler = baselines.ASHACQR(
        _space(task), metric=LOSS, time_attr=EPOCH, max_t=task.epochs, random_seed=seed
    )
    return SynePlayer(task, scheduler)


def _seed(seed: int) -> None:
    """Seed NumPy's global generator, which some of Syne Tune uses."""
    np.random.seed(Random(seed).randrange(2**31))


PLAYERS: Mapping[str, Callable[[Task, int], Player]] = {
    "random": _random,
    "TPE": _tpe,
    "ASHA": _asha,
    "BOHB": _bohb,
    "MOASHA": _moasha,
    "PBT": _pbt,
    "CQR": _cqr,
    "ASHA-CQR": _asha_cqr,
}
VERSION = version("syne-tune")
