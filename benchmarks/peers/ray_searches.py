"""Ray Tune's search algorithms, each with its library, asked for one trial after the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB

from benchmarks.peers.clock import Player
from benchmarks.peers.ray_schedulers import LOSS, RayPlayer
from benchmarks.tasks.domains import conditional, domains
from benchmarks.tasks.space import Space
from benchmarks.tasks.task import Task

# As in benchmarks/quality/searches.py.
_TRIALS, _AT_ONCE, _BEGINNING, _BEGINNING_ALONE = 32, 2, 10, 5


def _search(
    home: str,
    name: str,
    settings: Callable[[int], Mapping[str, Any]],
    space: Callable[[Space, Any], dict[str, Any]] = domains,
    scheduler: Callable[[Task], Any] = lambda task: FIFOScheduler(),
) -> Callable[[Task, int], Player]:
    def player(task: Task, seed: int) -> Player:
        # Some of them, or their libraries, use global random numbers.
        random.seed(seed)
        np.random.seed(seed)
        search = getattr(import_module(f"ray.tune.search.{home}"), name)(**settings(seed))
        assert search.set_search_properties(LOSS, "min", space(task.space, tune))
        return RayPlayer(task, seed, scheduler(task), search=search)

    return player


def _for_bohb(task: Task) -> HyperBandForBOHB:
    return HyperBandForBOHB(max_t=task.epochs, reduction_factor=3)


def _nevergrad(seed: int) -> Mapping[str, Any]:
    import nevergrad

    kwargs = {"budget": _TRIALS, "num_workers": _AT_ONCE}
    return {"optimizer": nevergrad.optimizers.NGOpt, "optimizer_kwargs": kwargs}


SEARCHES: Mapping[str, Callable[[Task, int], Player]] = {
    "BOHB": _search("bohb", "TuneBOHB", lambda seed: {"seed": seed}, scheduler=_for_bohb),
    "OptunaSearch": _search("optuna", "OptunaSearch", lambda seed: {"seed": seed}),
    "HyperOptSearch": _search(
        "hyperopt",
        "HyperOptSearch",
        lambda seed: {"random_state_seed": seed, "n_initial_points": _BEGINNING},
        conditional,
    ),
    "BayesOptSearch": _search(
        "bayesopt",
        "BayesOptSearch",
        lambda seed: {"random_state": seed, "random_search_steps": _BEGINNING_ALONE},
    ),
    "AxSearch": _search("ax", "AxSearch", lambda seed: {"random_seed": seed}),
    "NevergradSearch": _search("nevergrad", "NevergradSearch", _nevergrad),
    # By default, Ray's asks HEBO for eight configs at a time, each without knowledge of the
    # others.
    "HEBOSearch": _search(
        "hebo", "HEBOSearch", lambda seed: {"random_state_seed": seed, "max_concurrent": 1}
    ),
    "ZOOptSearch": _search(
        "zoopt", "ZOOptSearch", lambda seed: {"budget": _TRIALS, "parallel_num": _AT_ONCE}
    ),
}
