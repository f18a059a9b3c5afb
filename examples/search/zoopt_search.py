"""ZOOpt chooses the configs by classifying good and bad ones.

    python examples/search/zoopt_search.py --storage /tmp/results --name zoopt

Kill this script at any moment and start it again with the same --name: the library gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search.zoopt import ZOOptSearch


def make_search() -> ZOOptSearch:
    return ZOOptSearch(budget=20, seed=1)


if __name__ == "__main__":
    curve.main(__doc__, make_search, max_concurrent_trials=1)
