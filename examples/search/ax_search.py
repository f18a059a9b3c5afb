"""Ax chooses the configs with BoTorch's Gaussian process.

    python examples/search/ax_search.py --storage /tmp/results --name ax

Kill this script at any moment and start it again with the same --name: the library gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search.ax import AxSearch


def make_search() -> AxSearch:
    return AxSearch(seed=1, initialization_budget=3)


if __name__ == "__main__":
    curve.main(__doc__, make_search, max_concurrent_trials=1)
