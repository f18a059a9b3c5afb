"""Each config runs three times, and Optuna gets the mean.

    python examples/search/repeater.py --storage /tmp/results --name repeater --samples 30

The three trials of a config differ in `__trial_index__`, which is the seed of the training.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search import Repeater
from holdfast.tune.search.optuna import OptunaSearch


def make_search() -> Repeater:
    return Repeater(OptunaSearch(seed=1), repeat=3)


if __name__ == "__main__":
    curve.main(__doc__, make_search)
