"""Each config is tried three times, and Optuna is told the mean.

    python examples/search/repeater.py --storage /tmp/results --name repeater --samples 30

The three trials of a config differ by `__trial_index__`, from which the training takes its seed.
"""

from __future__ import annotations

import curve

from holdfast.tune.search import Repeater
from holdfast.tune.search.optuna import OptunaSearch


def make_search() -> Repeater:
    return Repeater(OptunaSearch(seed=1), repeat=3)


if __name__ == "__main__":
    curve.main(__doc__, make_search)
