"""HEBO chooses the configs.

    python examples/search/hebo_search.py --storage /tmp/results --name hebo

Kill this script at any moment and start it again with the same --name: the library gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search.hebo import HEBOSearch


def make_search() -> HEBOSearch:
    return HEBOSearch(random_state_seed=1, rand_sample=3)


if __name__ == "__main__":
    curve.main(__doc__, make_search, max_concurrent_trials=1)
