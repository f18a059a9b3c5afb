"""HyperOpt's tree of Parzen estimators chooses the configs, in a space with a choice.

    python examples/search/hyperopt_search.py --storage /tmp/results --name hyperopt

Kill this script at any moment and start it again with the same --name: the library gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast import tune
from holdfast.tune.search.hyperopt import HyperOptSearch

SPACE = {
    "features": tune.randint(2, 40),
    "lr": tune.loguniform(1e-3, 3),
    "momentum": tune.choice([0.0, tune.uniform(0.5, 0.99)]),
}


def make_search() -> HyperOptSearch:
    return HyperOptSearch(n_initial_points=3, random_state_seed=1)


if __name__ == "__main__":
    curve.main(__doc__, make_search, SPACE, max_concurrent_trials=1)
