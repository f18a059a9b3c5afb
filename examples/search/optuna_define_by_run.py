"""Optuna with a define-by-run function of yours, for two goals at once.

    python examples/search/optuna_define_by_run.py --storage /tmp/results --name define

The function names the parameters and returns constants; it trains nothing.
The sampler is NSGA-II, and the goals are a small loss and few features.
"""

from __future__ import annotations

from typing import Any

import optuna
from shared import curve

from holdfast.tune.search.optuna import OptunaSearch


def space(trial: Any) -> dict[str, Any]:
    trial.suggest_float("lr", 1e-3, 3, log=True)
    if trial.suggest_categorical("fast", [True, False]):
        trial.suggest_float("momentum", 0.5, 0.99)
    trial.suggest_int("features", 2, 40)
    return {"epochs": 3} if trial.params["fast"] else {"epochs": 6, "momentum": 0.0}


def make_search() -> OptunaSearch:
    return OptunaSearch(
        space,
        metric=["loss", "config/features"],
        mode=["min", "min"],
        sampler=optuna.samplers.NSGAIISampler(population_size=6),
        seed=1,
    )


if __name__ == "__main__":
    curve.main(__doc__, make_search, space={}, metric=None, mode=None)
