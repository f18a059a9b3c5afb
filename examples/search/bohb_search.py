"""BOHB: HyperBand decides how long each trial trains, and a model chooses the configs.

    python examples/search/bohb_search.py --storage /tmp/results --name bohb --samples 22

It needs no library. Kill this script at any moment and start it again with the same --name: it
makes the same choices as without the kill.
"""

from __future__ import annotations

import hyperband
from shared import curve, population

from holdfast.tune.schedulers import HyperBandForBOHB
from holdfast.tune.search.bohb import TuneBOHB


def make_search() -> TuneBOHB:
    return TuneBOHB(seed=1)


if __name__ == "__main__":
    curve.main(
        __doc__,
        make_search,
        hyperband.SPACE,
        train=population.train_fn,
        scheduler=HyperBandForBOHB(max_t=9, reduction_factor=3),
        max_concurrent_trials=1,
    )
