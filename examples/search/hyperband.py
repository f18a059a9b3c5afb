"""HyperBand: many trials start, and the best ones continue from their checkpoints.

    python examples/search/hyperband.py --storage /tmp/results --name hyperband --samples 22

With max_t=9 a round has brackets of 9, 5 and 3 trials. Kill the script in the middle and start it
again: paused trials stay paused, and the same ones continue.
"""

from __future__ import annotations

from shared import curve
from shared.population import train_fn

from holdfast import tune
from holdfast.tune.schedulers import HyperBandScheduler
from holdfast.tune.search import BasicVariantGenerator

SPACE = {"lr": tune.loguniform(1e-3, 3), "momentum": tune.uniform(0, 0.99)}


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


if __name__ == "__main__":
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    curve.main(__doc__, make_search, SPACE, train=train_fn, scheduler=scheduler)
