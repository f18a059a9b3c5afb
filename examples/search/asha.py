"""ASHA: a trial stops at each rung unless it is among the best so far.

    python examples/search/asha.py --storage /tmp/results --name asha --samples 50

The rungs are at 1, 3, 9 and 27 epochs. No trial is paused, so no checkpoint is needed.
"""

from __future__ import annotations

from shared import curve

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


def main() -> tune.ResultGrid:
    scheduler = ASHAScheduler(max_t=27, reduction_factor=3)
    return curve.main(__doc__, make_search, {**curve.SPACE, "epochs": 27}, scheduler=scheduler)


if __name__ == "__main__":
    results = main()
    epochs = [(result.metrics or {})["training_iteration"] for result in results]
    print(f"{sum(epochs)} epochs, of {27 * len(epochs)} without a scheduler")
