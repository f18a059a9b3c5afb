"""AutoSearch and AutoScheduler: a model chooses, and trials that fall behind stop early.

    python examples/search/auto_search.py --storage /tmp/results --name auto --samples 30

It needs no library. Kill this script at any moment and start it again with the same --name: it
makes the same choices as without the kill.
"""

from __future__ import annotations

import hyperband
from shared import curve, population

from holdfast.tune.schedulers import AutoScheduler
from holdfast.tune.search import AutoSearch


def make_search() -> AutoSearch:
    return AutoSearch(seed=1)


if __name__ == "__main__":
    curve.main(
        __doc__,
        make_search,
        hyperband.SPACE,
        train=population.train_fn,
        scheduler=AutoScheduler(),
        max_concurrent_trials=1,
    )
