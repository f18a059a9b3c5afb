"""Nevergrad's evolution strategy chooses the configs.

    python examples/search/nevergrad_search.py --storage /tmp/results --name nevergrad

Kill this script at any moment and start it again with the same --name: the library gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search.nevergrad import NevergradSearch


def make_search() -> NevergradSearch:
    return NevergradSearch(optimizer_kwargs={"budget": 20}, seed=1)


if __name__ == "__main__":
    curve.main(__doc__, make_search, max_concurrent_trials=1)
