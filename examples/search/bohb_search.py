"""BOHB: HyperBand says how far each trial goes, and a model of the good ones chooses the configs.

    python examples/search/bohb_search.py --storage /tmp/results --name bohb --samples 22

No library is needed for it. Kill this script at any moment and start it again with the same
--name: it chooses what it would have chosen.
"""

from __future__ import annotations

import curve
import hyperband
import population

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
