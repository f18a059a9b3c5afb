"""Random search, with first points and a grid.

    python examples/search/random_search.py --storage /tmp/results --name random --samples 8

Every sample runs with each number of features; with `constant_grid_search` the other values are
the same for all of them. Each trial runs to its end, because there is no scheduler.
"""

from __future__ import annotations

from shared import curve

from holdfast import tune
from holdfast.tune.schedulers import FIFOScheduler
from holdfast.tune.search import BasicVariantGenerator

SPACE = {**curve.SPACE, "features": tune.grid_search([4, 16])}


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(
        points_to_evaluate=[{"lr": 0.1, "momentum": 0.9}],
        constant_grid_search=True,
        max_concurrent=4,
        random_state=7,
    )


if __name__ == "__main__":
    curve.main(__doc__, make_search, SPACE, scheduler=FIFOScheduler())
