"""Optuna's samplers and pruners, asked through `study.ask()`, `should_prune()`, `tell()`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import optuna

from benchmarks.peers.clock import CONTINUE, STOP, Player, Run
from benchmarks.tasks.task import Task, drawn

optuna.logging.set_verbosity(optuna.logging.ERROR)


class OptunaPlayer:
    """`draws`: the configs are those of random search, enqueued as trials."""

    def __init__(
        self, task: Task, seed: int, *, sampler: Any = None, pruner: Any = None, draws: bool
    ) -> None:
        self._task = task
        self._seed = seed
        self._draws = draws
        self._study = optuna.create_study(
            sampler=sampler or optuna.samplers.RandomSampler(seed=seed),
            pruner=pruner or optuna.pruners.NopPruner(),
        )
        self._trials: dict[int, Any] = {}

    def next(self) -> Run:
        if self._draws:
            self._study.enqueue_trial(drawn(self._task, self._seed, len(self._trials)))
        trial = self._study.ask()
        number = len(self._trials)
        self._trials[number] = trial
        return Run(number=number, config=self._asked(trial), state=self._task.begun)

    def report(self, run: Run, seen: float) -> str:
        trial = self._trials[run.number]
        trial.report(seen, run.epoch)
        return STOP if trial.should_prune() else CONTINUE

    def ended(self, run: Run, seen: float) -> None:
        pruned = run.epoch < self._task.epochs
        state = optuna.trial.TrialState.PRUNED if pruned else None
        self._study.tell(self._trials[run.number], None if pruned else seen, state=state)

    def _asked(self, trial: Any) -> dict[str, Any]:
        config: dict[str, Any] = {}
        for axis in self._task.space:
            if not axis.exists(config):
                continue
            if axis.choices:
                value: Any = trial.suggest_categorical(axis.name, list(axis.choices))
            elif axis.integer:
                value = trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log)
            else:
                value = trial.suggest_float(axis.name, axis.low, axis.high, log=axis.log)
            config[axis.name] = value
        return config


def _random(task: Task, seed: int) -> Player:
    return OptunaPlayer(task, seed, draws=False)


def _tpe(task: Task, seed: int) -> Player:
    return OptunaPlayer(task, seed, sampler=optuna.samplers.TPESampler(seed=seed), draws=False)


def _halving(task: Task, seed: int) -> Player:
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return OptunaPlayer(task, seed, pruner=pruner, draws=True)


def _hyperband(task: Task, seed: int) -> Player:
    pruner = optuna.pruners.HyperbandPruner(
        min_resource=1, max_resource=task.epochs, reduction_factor=3
    )
    return OptunaPlayer(task, seed, pruner=pruner, draws=True)


def _median(task: Task, seed: int) -> Player:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2)
    return OptunaPlayer(task, seed, pruner=pruner, draws=True)


def _gp(task: Task, seed: int) -> Player:
    return OptunaPlayer(task, seed, sampler=optuna.samplers.GPSampler(seed=seed), draws=False)


def _tpe_with(pruner: Callable[[Task], Any]) -> Callable[[Task, int], Player]:
    def made(task: Task, seed: int) -> Player:
        sampler = optuna.samplers.TPESampler(seed=seed)
        return OptunaPlayer(task, seed, sampler=sampler, pruner=pruner(task), draws=False)

    return made


def _default_median(task: Task) -> Any:
    return optuna.pruners.MedianPruner()


def _default_hyperband(task: Task) -> Any:
    return optuna.pruners.HyperbandPruner(max_resource=task.epochs)


PLAYERS: Mapping[str, Callable[[Task, int], Player]] = {
    "random": _random,
    "TPE": _tpe,
    "ASHA": _halving,
    "HyperBand": _hyperband,
    "median": _median,
    "GP": _gp,
    "TPE, median": _tpe_with(_default_median),
    "TPE, HyperBand": _tpe_with(_default_hyperband),
}
VERSION = str(optuna.__version__)
