"""ZOOpt chooses the configs, by telling good and bad ones apart.

    python examples/search/zoopt_search.py --storage /tmp/results --name zoopt

Kill this script at any moment and start it again with the same --name: the library is told what
was tried before, and chooses what it would have chosen.
"""

from __future__ import annotations

import curve

from holdfast.tune.search.zoopt import ZOOptSearch


def make_search() -> ZOOptSearch:
    return ZOOptSearch(budget=20, seed=1)


if __name__ == "__main__":
    curve.main(__doc__, make_search, max_concurrent_trials=1)
