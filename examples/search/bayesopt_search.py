"""The Gaussian process of bayesian-optimization chooses the configs.

    python examples/search/bayesopt_search.py --storage /tmp/results --name bayesopt

Kill this script at any moment and start it again with the same --name: the library gets the
earlier results, and makes the same choices as without the kill.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search.bayesopt import BayesOptSearch


def make_search() -> BayesOptSearch:
    return BayesOptSearch(random_state=1, random_search_steps=3)


if __name__ == "__main__":
    curve.main(__doc__, make_search, max_concurrent_trials=1)
