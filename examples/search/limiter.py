"""A search that suggests two configs after the two before have ended.

    python examples/search/limiter.py --storage /tmp/results --name limiter

With `batch`, Optuna gets both results before it chooses the next two, so no choice lacks one of
them.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.search import ConcurrencyLimiter
from holdfast.tune.search.optuna import OptunaSearch


def make_search() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(OptunaSearch(seed=1), max_concurrent=2, batch=True)


if __name__ == "__main__":
    curve.main(__doc__, make_search)
