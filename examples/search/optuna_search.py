"""Optuna's TPE sampler chooses the configs, in a space with a choice of two optimizers.

    python examples/search/optuna_search.py --storage /tmp/results --name optuna

Kill this script at any moment and start it again with the same --name: the sampler gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast import tune
from holdfast.tune.search.optuna import OptunaSearch

SPACE = {
    "features": tune.randint(2, 40),
    "lr": tune.loguniform(1e-3, 3),
    "momentum": tune.choice([0.0, tune.uniform(0.5, 0.99)]),
}


def make_search() -> OptunaSearch:
    return OptunaSearch(seed=1, points_to_evaluate=[{"features": 10, "lr": 0.1, "momentum": 0.9}])


if __name__ == "__main__":
    # One at a time, so that each choice knows all earlier results.
    curve.main(__doc__, make_search, SPACE, max_concurrent_trials=1)
