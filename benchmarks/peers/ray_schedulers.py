"""Ray Tune's schedulers, called as its controller calls them, without a cluster.

Stand-ins for trial and controller have what the schedulers use. A checkpoint is the state of the
run when it was saved; it takes no time.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from ray import tune
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

from benchmarks.peers.clock import CONTINUE, PAUSE, STOP, Player, Run
from benchmarks.tasks.domains import domains
from benchmarks.tasks.task import Task, drawn

logging.disable(logging.WARNING)

LOSS, EPOCH = "loss", "training_iteration"
POPULATION = 16


class StandIn:
    """A trial as a scheduler sees it."""

    def __init__(self, run: Run, folder: str) -> None:
        self.run = run
        self.trial_id = _trial_id(run.number)
        self.config = dict(run.config)
        self.status = "PENDING"
        self.is_saving = False
        self.experiment_tag = self.trial_id
        self.evaluated_params: dict[str, Any] = {}
        self.last_result: dict[str, Any] = {}
        self.local_experiment_path = self.local_dir = folder
        self.temporary_state = SimpleNamespace(saving_to=None)
        self.run_metadata = SimpleNamespace(
            checkpoint_manager=SimpleNamespace(
                checkpoint_config=SimpleNamespace(num_to_keep=None), _latest_checkpoint_result=None
            )
        )

    @property
    def checkpoint(self) -> Any:
        return self.run.state, self.run.epoch

    def is_finished(self) -> bool:
        return self.status in ("TERMINATED", "ERROR")

    def set_config(self, config: dict[str, Any]) -> None:
        self.config = dict(config)

    def set_experiment_tag(self, tag: str) -> None:
        self.experiment_tag = tag

    def take_up(self) -> None:
        """Start from the checkpoint that it got, if any."""
        manager = self.run_metadata.checkpoint_manager
        if manager._latest_checkpoint_result is not None:
            self.run.state, self.run.epoch = manager._latest_checkpoint_result.checkpoint
            manager._latest_checkpoint_result = None
        self.run.config = dict(self.config)
        self.status = "RUNNING"


def _trial_id(number: int) -> str:
    return f"{number:05}"


class RayPlayer:
    """Plays Ray's schedulers.

    `population`: the number of trials; none is asked about after its last epoch, as with
    RunConfig(stop=...). `order`: the numbers of the configs of all trials. `search` chooses
    configs; without it they are those of random search.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        scheduler: Any,
        *,
        search: Any = None,
        population: int | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        if search is None:
            random.seed(seed)
            np.random.seed(seed)
        self._task = task
        self._search = search
        self.search_alg = SimpleNamespace(searcher=search)
        self._seed = seed
        self._scheduler = scheduler
        self._most = population if order is None else len(order)
        self._evolves = population is not None
        self._order = order
        self._folder = tempfile.TemporaryDirectory(prefix="quality-ray-")
        self._trials: list[StandIn] = []
        scheduler.set_search_properties(LOSS, "min")

    # -- what the scheduler asks of its controller ------------------------------------------------

    def get_trials(self) -> list[StandIn]:
        return self._trials

    def get_live_trials(self) -> list[StandIn]:
        return [trial for trial in self._trials if not trial.is_finished()]

    def pause_trial(self, trial: StandIn, should_checkpoint: bool = True) -> None:
        trial.status = "PAUSED"

    def stop_trial(self, trial: StandIn) -> None:
        """As in Ray: a waiting trial that the scheduler stops is passed to it as removed."""
        self._scheduler.on_trial_remove(self, trial)
        trial.status = "TERMINATED"
        if self._search is not None:
            self._search.on_trial_complete(trial.trial_id)

    def _schedule_trial_save(self, trial: StandIn, result: Any = None) -> Any:
        return trial.checkpoint

    # -- what the clock asks of a player ----------------------------------------------------------

    def next(self) -> Run | None:
        chosen = self._scheduler.choose_trial_to_run(self)
        if chosen is None and self._add():
            chosen = self._scheduler.choose_trial_to_run(self)
        if chosen is None:
            return None
        chosen.take_up()
        run: Run = chosen.run
        return run

    def _add(self) -> bool:
        number = len(self._trials)
        if self._most is not None and number >= self._most:
            return False
        config = self._suggested(number)
        if config is None:
            return False
        trial = StandIn(
            Run(number=number, config=config, state=self._task.begun), self._folder.name
        )
        self._trials.append(trial)
        self._scheduler.on_trial_add(self, trial)
        return True

    def _suggested(self, number: int) -> dict[str, Any] | None:
        if self._search is None:
            index = number if self._order is None else self._order[number]
            return drawn(self._task, self._seed, index)
        found = self._search.suggest(_trial_id(number))
        return found if isinstance(found, dict) else None

    def ends(self) -> list[Any]:
        """The epoch and config of each trial, by the number of its first config."""
        assert self._order is not None
        runs = {at: trial.run for at, trial in zip(self._order, self._trials, strict=True)}
        each = [runs[number] for number in range(len(runs))]
        return [[run.epoch, self._task.given(run.config)] for run in each]

    def report(self, run: Run, seen: float) -> str:
        trial = self._trials[run.number]
        result = {LOSS: seen, EPOCH: run.epoch}
        if run.epoch >= self._task.epochs and self._evolves:
            return STOP
        answer = self._scheduler.on_trial_result(self, trial, result)
        if self._search is not None and answer != "STOP":
            self._search.on_trial_result(trial.trial_id, result)
        trial.last_result = result
        if answer == "PAUSE":
            trial.status = "PAUSED"
        if trial.status == "PAUSED":
            return PAUSE
        return STOP if answer == "STOP" else CONTINUE

    def ended(self, run: Run, seen: float) -> None:
        trial = self._trials[run.number]
        result = {LOSS: seen, EPOCH: run.epoch}
        self._scheduler.on_trial_complete(self, trial, result)
        trial.status = "TERMINATED"
        if self._search is not None:
            self._search.on_trial_complete(trial.trial_id, result)


def _asha(task: Task, seed: int) -> Player:
    scheduler = AsyncHyperBandScheduler(max_t=task.epochs, grace_period=1, reduction_factor=3)
    return RayPlayer(task, seed, scheduler)


def _hyperband(task: Task, seed: int) -> Player:
    return RayPlayer(task, seed, HyperBandScheduler(max_t=task.epochs, reduction_factor=3))


def _median(task: Task, seed: int) -> Player:
    scheduler = MedianStoppingRule(
        time_attr=EPOCH, grace_period=2, min_samples_required=3, hard_stop=True
    )
    return RayPlayer(task, seed, scheduler)


def _pbt(task: Task, seed: int) -> Player:
    scheduler = PopulationBasedTraining(
        time_attr=EPOCH, perturbation_interval=4, log_config=False,
        hyperparam_mutations=domains(task.space, tune),
    )  # fmt: skip
    return RayPlayer(task, seed, scheduler, population=POPULATION)


def _pb2(task: Task, seed: int) -> Player:
    from ray.tune.schedulers.pb2 import PB2  # only where scikit-learn is installed

    bounds = {axis.name: [axis.low, axis.high] for axis in task.space}
    scheduler = PB2(
        time_attr=EPOCH, perturbation_interval=4, log_config=False, hyperparam_bounds=bounds
    )
    return RayPlayer(task, seed, scheduler, population=POPULATION)


SCHEDULERS: Mapping[str, Callable[[Task, int], Player]] = {
    "ASHA": _asha,
    "HyperBand": _hyperband,
    "median": _median,
    "PBT": _pbt,
    "PB2": _pb2,
}
